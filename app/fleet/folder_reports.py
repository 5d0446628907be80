"""Asks workers what the definitions of a folder offer there: its agents and tools."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pydantic import BaseModel

from app.domain.environment.definitions import Definitions
from app.store.definitions import DefinitionStore
from leadhand.models.definition_folder import FILES
from leadhand.models.tool_names import TOOLS_FILE
from leadhand.models.views.fleet import AgentHere, AgentsFault, ToolHere, WorkerView

#: How long a worker may take to report on a folder, and the pause between two looks, in seconds.
PATIENCE_S, LOOK_S = 10.0, 0.02


class FolderReport(BaseModel):
    """What a worker offers to the sessions of a folder: its agents and tools, and the folder's."""

    agents_here: list[AgentHere] = []
    agents_faults: list[AgentsFault] = []
    tools_here: list[ToolHere] = []


class FolderReports:
    """Shows the workers of a place as they are for the sessions of a folder."""

    def __init__(self, store: DefinitionStore, *, place: str) -> None:
        self._store = store
        self._place = place

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
