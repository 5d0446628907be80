"""Reports what the definitions of folders offer here, and runs their MCP servers.

See decisions: security.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from app.core.environment import Definitions
from app.engine import Engine
from app.fleet.folder_reports import FolderReport
from app.store.fleet import ASKED_S, Asked, DefinitionStore
from leadhand.errors import StoreAway
from tasks import periodic
from tasks.periodic import STEADY, Pace
from workers.processes.user_folders import claim_folder
from workers.registry.agents import agents_here, faults_of
from workers.registry.registries import Registries, Registry
from workers.tool_servers.manager import ToolServers

log = logging.getLogger(__name__)

#: Seconds between two looks for questions, while there are some and while there are none.
LOOK_S, QUIET_LOOK_S = 0.2, 0.5
#: The same while the worker rests.
REST_S = 1.0
#: Seconds after which a report is made again.
AGAIN_S = 2.0
#: Seconds that the first report waits for MCP servers to list their tools.
SERVERS_S = 8.0
#: A process that runs steps with MCP servers of a folder asks for them so often.
RENEW_S = 60.0


class _Folder:
    """Definitions on which this worker reports."""

    def __init__(self, definitions: Definitions, registry: Registry, servers: ToolServers) -> None:
        self.definitions = definitions
        self.registry = registry
        self.servers = servers
        self.since_s = time.monotonic()
        self.reported = ""
        self.stored_s = self.due_s = 0.0

    def report(self) -> str:
        """Return what it offers (JSON)."""
        book = self.registry.agents.current()
        return FolderReport(
            agents_here=[*agents_here(book)],
            agents_faults=[*faults_of(book)],
            tools_here=[*self.registry.shelf.tools()],
        ).model_dump_json(exclude_defaults=True)

    def waits_for_servers(self) -> bool:
        """Whether a server of its own has not listed its tools yet, and may still do it."""
        if self.stored_s or time.monotonic() - self.since_s > SERVERS_S:
            return False
        served = self.registry.shelf.served
        own = self.registry.servers().entries
        return any(not served.has_state(name) for name in own)


class FolderReporter:
    """Answers the questions of the API about folders, from a thread until it is stopped."""

    def __init__(
        self, engine: Engine, registries: Registries, *, worker: str, pace: Pace = STEADY
    ) -> None:
        self._pace = pace
        self._engine = engine
        self._registries = registries
        self._worker = worker
        self._store = engine.store.part(DefinitionStore)
        self._folders: dict[str, _Folder] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="folder reports", daemon=True)

    def start(self) -> None:
        """Start the thread, if the settings allow agents and tools that folders define."""
        if self._engine.settings.folder_definitions:
            self._thread.start()

    def stop(self) -> None:
        """End the thread and the MCP servers of folders."""
        self._stop.set()
        self._pace.touch()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)
        for folder in self._folders.values():
            folder.servers.stop()

    def look(self) -> None:
        """Report to the store the agents and tools of asked folders; drop the others.

        Raises StoreAway.
        """
        place = self._engine.settings.place
        asked = {mark: one for mark, one in self._store.asked().items() if one.place == place}
        now_s, folders = time.monotonic(), self._folders
        if asked.keys() == folders.keys() and all(now_s < one.due_s for one in folders.values()):
            return
        now_ms = self._engine.store.now_ms()
        for mark, one in asked.items():
            if now_ms - one.asked_ms > ASKED_S * 1000:
                self._store.forget(mark)
        current = {m: one for m, one in asked.items() if now_ms - one.asked_ms <= ASKED_S * 1000}
        for mark in self._folders.keys() - current.keys():
            self._folders.pop(mark).servers.stop()
        for mark, one in current.items():
            self._report(mark, self._folders.get(mark) or self._begin(mark, one))

    def _begin(self, mark: str, asked: Asked) -> _Folder:
        registry = self._registries.of(asked.definitions)
        claim_folder(self._registries.folder)
        servers = ToolServers(
            self._registries.servers_of(asked.definitions),
            registry.servers,
            hosts=self._engine.settings.tool_hosts,
            pace=self._pace,
        )
        servers.start()
        folder = self._folders[mark] = _Folder(asked.definitions, registry, servers)
        return folder

    def _report(self, mark: str, folder: _Folder) -> None:
        now_s = time.monotonic()
        if now_s < folder.due_s or folder.waits_for_servers():
            return
        folder.due_s = now_s + (periodic.REST_S if self._pace.rests() else AGAIN_S)
        text = folder.report()
        if text != folder.reported or now_s - folder.stored_s > ASKED_S / 3:
            self._store.report(mark, self._worker, text)
            folder.reported, folder.stored_s = text, now_s

    def _run(self) -> None:
        while not self._pace.wait(self._stop, LOOK_S if self._folders else QUIET_LOOK_S, REST_S):
            try:
                self.look()
            except StoreAway as error:
                log.warning("reports on folders wait for the store", extra={"why": str(error)})
                self._stop.wait(1.0)
            except Exception:  # an unexpected file must not end the thread
                log.exception("report on a folder failed, will be retried")
                self._stop.wait(1.0)


def registry_for_steps(engine: Engine, registries: Registries) -> Callable[[Definitions], Registry]:
    """Returns a function that looks up a folder's registry and keeps its MCP servers running."""
    store, renewed = engine.store.part(DefinitionStore), dict[str, float]()

    def look_up(definitions: Definitions) -> Registry:
        found, now_s = registries.of(definitions), time.monotonic()
        is_due = now_s - renewed.get(definitions.mark, -RENEW_S) >= RENEW_S
        if is_due and found.servers().entries:
            renewed[definitions.mark] = now_s
            try:
                place, now_ms = engine.settings.place, engine.store.now_ms()
                store.ask(definitions, place=place, now_ms=now_ms)
            except StoreAway as error:
                log.warning("servers of a folder not asked for", extra={"why": str(error)})
        return found

    return look_up
