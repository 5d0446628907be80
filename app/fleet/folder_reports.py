"""Reads what a folder defines, and asks workers what that offers (decisions: security)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel

from app.core.environment import Definitions
from app.errors import InvalidDocument
from app.fleet.inventory import live_workers
from app.settings import Settings
from app.store.fleet import DefinitionStore
from app.store.store import Store
from leadhand.models.approvals import FOREIGN, Approvals, is_foreign
from leadhand.models.folder_settings import (
    FILES,
    FLOWS,
    FolderSettingInvalid,
    FolderSettings,
    SessionSettings,
    TomlUnreadable,
    definition_files,
    folder_with_definitions,
    read_text,
)
from leadhand.models.tool_schemas import TOOLS_FILE
from leadhand.models.views.fleet import AgentHere, AgentsFault, ToolHere, WorkerView

#: The most bytes of a file that are stored with each session.
LARGEST = 256 * 1024
#: How long a worker may take to report on a folder, and the pause between two looks, in seconds.
PATIENCE_S, LOOK_S = 10.0, 0.02


class DefinitionFiles:
    """Finds and reads the definitions of folders; only embedded services have any."""

    def __init__(self, settings: Settings) -> None:
        self._kinds = settings.folder_definitions
        self._home = settings.user_home
        self._approvals = settings.approvals
        self._env = {"PATH": settings.search_path, "HOME": str(settings.user_home or "")}

    def of(self, folder: str | None, *, free: bool) -> Definitions | None:
        """Reads the agent and tool definitions that apply in a folder; None if there are none.

        Unless `free`, workers use only what the user has approved of it. Raises InvalidDocument if
        a file of another user would define something.
        """
        if not self._kinds or not folder:
            return None
        found = folder_with_definitions(Path(folder), self._home)
        if found is None:
            return None
        for foreign in _foreign_files(found):
            raise InvalidDocument("folder", str(foreign), f"this file {FOREIGN}")
        agents, tools = FILES
        unread = dict[str, str]()
        return Definitions(
            folder=str(found),
            agents=_read(found / agents, unread) if "agents" in self._kinds else "",
            tools=_read(found / tools, unread) if "agents" in self._kinds else "",
            unread=unread,
            functions="tools" in self._kinds,
            approved_only=not free,
        )

    def flows_of(self, folder: str | None) -> Path | None:
        """Returns the folder of the flow files that apply in a folder, which need not exist."""
        if "flows" not in self._kinds or not folder:
            return None
        found = folder_with_definitions(Path(folder), self._home)
        return (found or Path(folder)) / FLOWS

    def session_settings_in(self, folder: str | None, *, is_child: bool) -> SessionSettings:
        """Returns what leadhand.toml in a folder sets for sessions. Raises InvalidDocument.

        Of a child session only protected files, as they are committed: a doer may have changed or
        committed the file, and the other settings make checks weaker.
        """
        if not self._kinds or not folder:
            return SessionSettings()
        settings, field = FolderSettings(Path(folder), self._env), "protected"
        try:
            protected = settings.protected(committed_only=is_child)
            if is_child:
                return SessionSettings(protected)
            field = "quarantine"
            quarantine = settings.quarantine()
            field = "leave_out"
            return SessionSettings(protected, quarantine, settings.leave_out())
        except FolderSettingInvalid as error:
            hint = "correct the file; its settings apply to all sessions in its folder"
            raise InvalidDocument(field, str(error), hint) from None

    def why_no_commands(self, flows: Path) -> str | None:
        """Returns why flows of this folder may not have commands without exec:free; or None."""
        return Approvals(flows.parent, self._approvals, strict=True).why_not(flows)

    def are_approved(self, found: Definitions | None) -> bool:
        """Whether the user has approved the agents and tools of a folder as they were read."""
        if found is None:
            return True
        folder = Path(found.folder)
        approvals = Approvals(folder, self._approvals, strict=True)
        texts = zip(FILES, (found.agents, found.tools), strict=True)
        return not any(text and approvals.lack(folder / name, text) for name, text in texts)

    @property
    def are_read(self) -> bool:
        """Whether the settings allow folders to define agents, tools or flows of their own."""
        return bool(self._kinds)


def _foreign_files(folder: Path) -> Iterator[Path]:
    """The files of definitions, and folders of them, that neither this user nor root owns."""
    files = [*definition_files(folder)]
    yield from filter(is_foreign, dict.fromkeys([*files, *(file.parent for file in files)]))


def _read(file: Path, unread: dict[str, str]) -> str:
    try:
        text = read_text(file)
    except TomlUnreadable as error:
        unread[file.name] = error.why
        return ""
    if len(text.encode()) > LARGEST:
        unread[file.name] = f"is larger than {LARGEST // 1024} kB; make it smaller"
        return ""
    return text


class FolderReport(BaseModel):
    """What a worker offers to the sessions of a folder: its agents and tools, and the folder's."""

    agents_here: list[AgentHere] = []
    agents_faults: list[AgentsFault] = []
    tools_here: list[ToolHere] = []


class FolderReports:
    """Shows the workers of a place as they are for the sessions of a folder."""

    def __init__(self, store: Store, *, place: str) -> None:
        self._workers_now = store.workers_now
        self._store = store.part(DefinitionStore)
        self._place = place

    def inventories(self, definitions: Definitions | None = None) -> list[WorkerView]:
        """Returns the fleet's live workers, as they describe themselves; expired ones are left out.

        With definitions they have the agents and tools that they offer to sessions with these.
        """
        texts, now_ms = self._workers_now()
        workers = live_workers(texts, now_ms)
        return workers if definitions is None else self.views(workers, definitions, now_ms=now_ms)

    def views(
        self, workers: Sequence[WorkerView], definitions: Definitions, *, now_ms: int
    ) -> list[WorkerView]:
        """Returns the workers with agents and tools from definitions; waits for their reports.

        Waits for workers that have not read the definitions yet. One that takes too long has a
        fault that says so.
        """
        mine = (one for one in workers if one.place == self._place and one.session is None)
        here = {worker.name for worker in mine}
        found = self._store.ask(definitions, place=self._place, now_ms=now_ms)
        give_up = time.monotonic() + PATIENCE_S
        while not here <= found.keys() and time.monotonic() < give_up:
            time.sleep(LOOK_S)
            found = self._store.reports(definitions.mark)
        return [
            _with_report(worker, found.get(worker.name), definitions)
            if worker.name in here
            else worker
            for worker in workers
        ]


def _with_report(worker: WorkerView, text: str | None, definitions: Definitions) -> WorkerView:
    if text is None:
        return _unread(worker, definitions)
    report = FolderReport.model_validate_json(text)
    return worker.model_copy(
        update={
            "agents": [agent.name for agent in report.agents_here],
            "agents_here": report.agents_here,
            "agents_faults": report.agents_faults,
            "tools_here": report.tools_here,
        }
    )


def _unread(worker: WorkerView, definitions: Definitions) -> WorkerView:
    agents, tools = (f"{definitions.folder}/{name}" for name in FILES)
    late = f"worker {worker.name} has not read it yet; try again in a moment"
    return worker.model_copy(
        update={
            "agents_faults": [*worker.agents_faults, AgentsFault(text=f"{agents}: {late}")],
            "tools_here": [
                *worker.tools_here,
                ToolHere(name=TOOLS_FILE, kind="command", why_not=f"{tools}: {late}"),
            ],
        }
    )
