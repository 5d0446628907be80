"""A worker host tells what it is: its place, roots, agents and queues, as long as it lives."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable

from pydantic import JsonValue

from app.engine import Engine
from app.errors import StoreAway
from app.inventories import forgotten, text_of
from app.program import SCHEMA_VERSION
from app.views import AgentHere, ToolHere
from workers import environment

log = logging.getLogger(__name__)

#: Seconds between two looks at what there is to tell, at most.
LOOK_S = 1.0
#: How often a word is said anew within the time for which it holds.
WORDS = 4.5

_Offers = tuple[tuple[AgentHere, ...], tuple[ToolHere, ...]]


class Inventory:
    """Publishes until it is stopped, and takes its word back then."""

    def __init__(
        self,
        engine: Engine,
        *,
        name: str,
        queues: tuple[str, ...],
        agents: Callable[[], tuple[AgentHere, ...]],
        tools: Callable[[], tuple[ToolHere, ...]] = tuple,
    ) -> None:
        self._engine = engine
        self._name = name
        self._queues = queues
        self._agents = agents
        self._tools = tools
        self._holds_s = engine.settings.inventory_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="inventory", daemon=True)

    def start(self) -> None:
        """Tell now, and again and again."""
        self._thread.start()

    def stop(self) -> None:
        """Take the word back, where one was given."""
        if self._thread.ident is None:
            return
        self._stop.set()
        self._thread.join(timeout=10)
        try:
            self._engine.store.fleet().forget_worker(self._name)
        except StoreAway:
            log.info("inventory left to grow old", extra={"worker": self._name})

    def tell(self) -> None:
        """Publish once."""
        settings, (agents, tools) = self._engine.settings, self._offers()
        told: dict[str, JsonValue] = {
            "place": settings.place,
            "queues": [*self._queues],
            "agents": [agent.name for agent in agents],
            "agents_here": [agent.model_dump(exclude_none=True) for agent in agents],
            "tools_here": [tool.model_dump(exclude_defaults=True) for tool in tools],
            "default_agent": settings.default_agent,
            "roots": [str(root) for root in settings.roots],
            "concurrency": settings.concurrency,
            "schema_version": SCHEMA_VERSION,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "path": environment.inherited().get("PATH"),
        }
        fleet, now_ms = self._engine.store.fleet(), self._engine.store.now_ms()
        text = text_of(told, now_ms=now_ms, holds_ms=round(self._holds_s * 1000))
        fleet.tell_of_worker(self._name, text)
        for name in forgotten(fleet.workers(), now_ms):
            fleet.forget_worker(name)

    def _run(self) -> None:
        told: _Offers | None = None
        every_s, told_s = self._holds_s / WORDS, 0.0
        while True:
            try:
                offers = self._offers()
                if offers != told or time.monotonic() - told_s >= every_s:
                    told, told_s = (offers if self._told() else None), time.monotonic()
            except Exception:  # one file that nobody thought of must not end the thread
                log.exception("telling of what is here failed, goes on")
            if self._stop.wait(min(LOOK_S, every_s)):
                return

    def _offers(self) -> _Offers:
        return self._agents(), self._tools()

    def _told(self) -> bool:
        try:
            self.tell()
        except StoreAway as error:
            log.warning("inventory waits for the store", extra={"why": str(error)})
            return False
        return True
