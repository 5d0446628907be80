"""`python -P -m workers.probe`: whether the worker of this host is at work, for health checks.

It fails only where Redis answers and has not heard of the worker for too long: while Redis is away
a worker does well to wait, and a restart would not bring Redis back.
"""

from __future__ import annotations

import socket
import sys

from app.errors import LeadhandError, StoreAway
from app.inventories import Inventory, inventory_of
from app.settings import Settings
from app.store import Store, connect


def main() -> int:
    """Say how it is; 1 where the worker should be looked after."""
    try:
        settings = Settings.from_env()
        store = Store(connect(settings.redis_url, tries=1), prefix=settings.prefix)
        now_ms = store.now_ms()
        told = _told(store, settings.worker_name)
    except StoreAway as error:
        sys.stdout.write(f"the worker waits: {error}\n")
        return 0
    except (LeadhandError, ValueError) as error:
        sys.stdout.write(f"cannot look: {error}\n")
        return 1
    if told is None:
        sys.stdout.write("no worker of this host has told of itself\n")
        return 1
    sys.stdout.write(f"the worker told of itself {(now_ms - told.seen_ms) / 1000:.0f} s ago\n")
    return 0 if now_ms <= told.until_ms else 1


def _told(store: Store, name: str) -> Inventory | None:
    """What the worker of this name told last; without a name, any of this host."""
    found = [inventory_of(*one) for one in store.fleet().workers().items()]
    here = socket.gethostname()
    mine = [i for i in found if (i.worker.name == name if name else i.worker.host == here)]
    return max(mine, key=lambda told: told.seen_ms, default=None)


if __name__ == "__main__":
    sys.exit(main())
