"""Health check for the worker of this host: `python -P -m leadhand.serve probe`.

Fails only if Redis responds and the worker's inventory has expired. While Redis is unreachable the
worker is right to wait, and a restart of the worker would not bring Redis back.
"""

from __future__ import annotations

import socket
import sys

from app.fleet.inventory import Inventory, inventory_of
from app.settings import Settings
from app.store.identity import IdentityUnreadable, memory_of, state_of
from app.store.store import Store, connect
from leadhand.errors import LeadhandError, StoreAway, StoreUnknown


def main() -> int:
    """Print the worker's health; return 1 if the worker needs attention."""
    try:
        settings = Settings.from_env()
        store = Store(connect(settings.redis_url, tries=1), prefix=settings.prefix)
        _check_store(store, settings)
        now_ms = store.now_ms()
        inventory = _latest_inventory(store, settings.worker_name)
    except StoreAway as error:
        sys.stdout.write(f"the worker waits: {error}\n")
        return 0
    except (LeadhandError, ValueError) as error:
        sys.stdout.write(f"the probe failed: {error}\n")
        return 1
    if inventory is None:
        sys.stdout.write("no worker of this host has published its inventory; start one\n")
        return 1
    age_s = (now_ms - inventory.seen_ms) / 1000
    sys.stdout.write(f"the worker published its inventory {age_s:.0f} s ago\n")
    return 0 if now_ms <= inventory.until_ms else 1


def _check_store(store: Store, settings: Settings) -> None:
    """Raise StoreUnknown while the worker waits for an operator to accept the store."""
    memory = memory_of(settings)
    try:
        remembered = memory.read()
    except IdentityUnreadable as error:
        raise StoreUnknown(store.where(), "unreadable", file=error.file) from error
    state = state_of(remembered, store.identity().read())
    if remembered is not None and state != "known":
        raise StoreUnknown(store.where(), state, remembered.id)


def _latest_inventory(store: Store, name: str) -> Inventory | None:
    """The latest inventory of the worker with this name; without a name, of any on this host."""
    inventories = [inventory_of(*entry) for entry in store.fleet().workers().items()]
    here = socket.gethostname()
    mine = [i for i in inventories if (i.worker.name == name if name else i.worker.host == here)]
    return max(mine, key=lambda inventory: inventory.seen_ms, default=None)


if __name__ == "__main__":
    sys.exit(main())
