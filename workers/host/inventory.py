"""Publishes a worker's inventory while it runs: its place, roots, agents, tools and queues."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from pydantic import JsonValue

from app.core.program import SCHEMA_VERSION
from app.engine import Engine
from app.fleet.inventory import long_expired, text_of
from leadhand.errors import StoreAway
from leadhand.models.views.fleet import AgentHere, AgentsFault, ToolHere
from tasks.periodic import STEADY, Pace
from workers.host.join_fleet import NameLock
from workers.processes import environment

log = logging.getLogger(__name__)

#: The most seconds between two checks for a change.
LOOK_S = 1.0
#: The same while the worker rests.
REST_S = 4.0
#: How often the inventory is renewed within its time to live.
RENEWALS = 4.5


class _Offers(NamedTuple):
    """The parts of an inventory that may change while the worker runs."""

    agents: tuple[AgentHere, ...]
    faults: tuple[AgentsFault, ...]
    tools: tuple[ToolHere, ...]
    consumes: tuple[str, ...] | None


class Inventory:
    """Publishes the inventory from a thread until it is stopped, then deletes it."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        queues: tuple[str, ...],
        agents: Callable[[], tuple[AgentHere, ...]],
        faults: Callable[[], tuple[AgentsFault, ...]] = tuple,
        tools: Callable[[], tuple[ToolHere, ...]] = tuple,
        consumes: Callable[[], tuple[str, ...] | None] = lambda: None,
        lock: NameLock | None = None,
        pace: Pace = STEADY,
    ) -> None:
        self._pace = pace
        self._lock = lock
        self._engine = engine
        self._name = name
        self._queues = queues
        self._agents = agents
        self._faults = faults
        self._tools = tools
        self._consumes = consumes
        self._ttl_s = engine.settings.inventory_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inventory", daemon=True)

    def start(self) -> None:
        """Start the thread that publishes the inventory: now, after changes, before it expires."""
        self._thread.start()

    def stop(self) -> None:
        """Stop publishing, delete the worker's inventory and release the lock on its name."""
        if self._thread.ident is None:
            return
        self._stop.set()
        self._pace.touch()
        self._thread.join(timeout=10)
        try:
            self._engine.store.fleet().delete_inventory(self._name)
            if self._lock is not None:
                self._lock.release()
        except StoreAway:
            log.info("inventory left to expire", extra={"worker": self._name})

    def publish(self) -> None:
        """Publish the inventory, renew the name's lock, delete expired ones. Raises StoreAway."""
        self._engine.guard.require_now()  # an emptied store must keep nothing
        if self._lock is not None:
            self._lock.renew()
        settings, (agents, faults, tools, consumes) = self._engine.settings, self._offers()
        fields: dict[str, JsonValue] = {
            "place": settings.place,
            "queues": [*self._queues],
            "consumes": None if consumes is None else [*consumes],
            "agents": [agent.name for agent in agents],
            "agents_here": [agent.model_dump(exclude_none=True) for agent in agents],
            "agents_faults": [fault.model_dump(exclude_none=True) for fault in faults],
            "tools_here": [tool.model_dump(exclude_defaults=True) for tool in tools],
            "default_agent": settings.default_agent,
            "roots": [str(root) for root in settings.roots],
            "concurrency": settings.concurrency,
            "idle_processes": settings.idle_processes or settings.concurrency,
            "load": round(os.getloadavg()[0], 1),
            "cores": os.cpu_count(),
            "schema_version": SCHEMA_VERSION,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "troubles": [*self._engine.troubles.current()],
            "path": environment.inherited().get("PATH"),
        }
        fleet, now_ms = self._engine.store.fleet(), self._engine.store.now_ms()
        text = text_of(fields, now_ms=now_ms, holds_ms=round(self._ttl_s * 1000))
        fleet.publish_inventory(self._name, text)
        for name in long_expired(fleet.workers(), now_ms):
            fleet.delete_inventory(name)

    def _run(self) -> None:
        published: object = None
        every_s, published_s = self._ttl_s / RENEWALS, 0.0
        while True:
            try:
                offers = (*self._offers(), self._engine.troubles.current())
                if offers != published or time.monotonic() - published_s >= every_s:
                    published = offers if self._try_publish() else None
                    published_s = time.monotonic()
            except Exception:  # an unexpected file must not end the thread
                log.exception("inventory failed, will be retried")
            if self._pace.wait(self._stop, min(LOOK_S, every_s), min(REST_S, every_s)):
                return

    def _offers(self) -> _Offers:
        return _Offers(self._agents(), self._faults(), self._tools(), self._consumes())

    def _try_publish(self) -> bool:
        try:
            self.publish()
        except StoreAway as error:
            log.warning("inventory waits for the store", extra={"why": str(error)})
            return False
        return True
