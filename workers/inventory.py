"""A worker host tells what it is: its place, roots, agents and queues, as long as it lives."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Callable

from app.engine import Engine
from app.errors import StoreAway

log = logging.getLogger(__name__)

#: Seconds between two looks at what there is to tell.
LOOK_S = 1.0
#: Looks between two words where nothing changed; readers believe one for 45 s.
EVERY = 10


class Inventory:
    """Publishes until it is stopped, and takes its word back then."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        queues: tuple[str, ...],
        agents: Callable[[], tuple[str, ...]],
    ) -> None:
        self._engine = engine
        self._name = name
        self._queues = queues
        self._agents = agents
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inventory", daemon=True)

    def start(self) -> None:
        """Tell now, and again and again."""
        self._thread.start()

    def stop(self) -> None:
        """Take the word back."""
        self._stop.set()
        self._thread.join(timeout=10)
        try:
            self._engine.store.fleet().forget_worker(self._name)
        except StoreAway:
            log.info("inventory left to grow old", extra={"worker": self._name})

    def tell(self) -> None:
        """Publish once."""
        settings = self._engine.settings
        told = {
            "place": settings.place,
            "queues": list(self._queues),
            "agents": sorted(self._agents()),
            "default_agent": settings.default_agent,
            "roots": [str(root) for root in settings.roots],
            "concurrency": settings.concurrency,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "seen_ms": self._engine.store.now_ms(),
        }
        self._engine.store.fleet().tell_of_worker(self._name, json.dumps(told))

    def _run(self) -> None:
        told: tuple[str, ...] | None = None
        rounds = 0
        while True:
            agents = self._agents()
            if agents != told or rounds % EVERY == 0:
                told = agents if self._told() else None
            rounds += 1
            if self._stop.wait(LOOK_S):
                return

    def _told(self) -> bool:
        try:
            self.tell()
        except StoreAway as error:
            log.warning("inventory waits for the store", extra={"why": str(error)})
            return False
        return True
