"""`python -P -m workers.probe`: whether the worker of this host is at work, for health checks.

It fails only where Redis answers and has not heard of the worker for too long: while Redis is away
a worker does well to wait, and a restart would not bring Redis back.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator

from app.errors import LeadhandError, StoreAway
from app.reading import WORKER_AGE_MS
from app.settings import Settings
from app.store import Store, connect


def main() -> int:
    """Say how it is; 1 where the worker should be looked after."""
    try:
        settings = Settings.from_env()
        store = Store(connect(settings.redis_url, tries=1), prefix=settings.prefix)
        ages = list(_ages_ms(store, settings.worker_name))
    except StoreAway as error:
        sys.stdout.write(f"the worker waits: {error}\n")
        return 0
    except (LeadhandError, ValueError) as error:
        sys.stdout.write(f"cannot look: {error}\n")
        return 1
    if not ages:
        sys.stdout.write("no worker of this host has told of itself\n")
        return 1
    sys.stdout.write(f"the worker told of itself {min(ages) / 1000:.0f} s ago\n")
    return 0 if min(ages) <= WORKER_AGE_MS else 1


def _ages_ms(store: Store, name: str) -> Iterator[int]:
    """How long ago the worker of this name told of itself; without a name, any of this host."""
    now = store.now_ms()
    for worker, text in store.fleet().workers().items():
        told = json.loads(text)
        if worker == name if name else told["host"] == socket.gethostname():
            yield now - int(told["seen_ms"])


if __name__ == "__main__":
    sys.exit(main())
