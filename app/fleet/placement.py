"""Chooses the place whose roots hold a session's folder."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

from app.compiler.requirements import Requirements
from app.errors import InvalidDocument
from app.fleet.offers import AgentsThere, ToolsThere
from app.settings import Settings
from leadhand.flows.documents import AnyDocument, FlowDocument
from leadhand.graphs.documents import GraphDocument
from leadhand.models.views.fleet import WorkerView


def check_roots(
    cwd: str | None, place: str, here: Sequence[WorkerView], worktrees: str | None = None
) -> None:
    """Raises InvalidDocument if a folder is outside the roots of all workers; passes without roots.

    Folders in `worktrees` are allowed everywhere: workers make them for sessions.
    """
    rooted = [worker for worker in here if worker.roots]
    if cwd is None or not rooted or len(rooted) < len(here):
        return
    if worktrees is not None and _below(cwd, worktrees):
        return
    if not any(_below(cwd, root) for worker in rooted for root in worker.roots):
        roots = ", ".join(sorted({root for worker in rooted for root in worker.roots}))
        raise InvalidDocument("cwd", cwd, f"at {place!r} working folders must lie beneath {roots}")


def other_home(
    place: str,
    cwd: str,
    workers: Sequence[WorkerView],
    *,
    agents: Collection[str],
    tools: Collection[str] = (),
) -> str | None:
    """Returns the one other place (worker host) that can take over a session left without workers.

    It must have the folder, the agents and the tools. None if there is no such place or several, or
    if the session's own place has a worker.
    """
    if any(worker.place == place for worker in workers):
        return None
    holding = {w.place for w in workers if any(_below(cwd, root) for root in w.roots)}
    there, shelves = AgentsThere(workers), ToolsThere(workers)
    able = [
        one for one in holding if there.usable_at(one, agents) and shelves.usable_at(one, tools)
    ]
    return able[0] if len(able) == 1 else None


def choose_place(
    document: AnyDocument,
    needs: Requirements,
    settings: Settings,
    workers: Sequence[WorkerView],
) -> str:
    """Returns a new session's place (worker host): the named one, one with its folder, or ''.

    This API's own place is preferred. A session without a folder gets the empty name (any place),
    unless its agents store conversations on their host.
    """
    cwd = document.cwd
    if document.place is not None:
        return document.place
    if cwd is None:
        is_kept = isinstance(document, FlowDocument | GraphDocument) or needs.keeps_conversations
        return _home_of(needs, settings, workers) if is_kept else ""
    return _place_of(cwd, settings, workers)


def _home_of(needs: Requirements, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """A place that has all agents and tools, preferably this API's own; "" for any place."""
    agents, tools = AgentsThere(workers), ToolsThere(workers)
    names, used = needs.agent_names, needs.tool_names
    default = agents.default()
    if needs.keeps_conversations and default is not None:
        names = names | {default}
    if not agents.any_stores_conversations(names) and tools.everywhere(used):
        return ""
    able = [place for place in tools.places_with(used) if agents.usable_at(place, names)]
    if not able:
        return settings.place if agents.any_stores_conversations(names) else ""
    return settings.place if settings.place in able else able[0]


def _place_of(cwd: str, settings: Settings, workers: Sequence[WorkerView]) -> str:
    """A place whose workers may use the folder. Workers without roots may use any folder."""
    rooted = {w.place for w in workers if any(_below(cwd, root) for root in w.roots)}
    holding = rooted | {w.place for w in workers if not w.roots}
    if not holding:
        staffed = {w.place for w in workers}
        return settings.place if settings.place in staffed or not staffed else min(staffed)
    others = holding - {settings.place}
    if settings.place in holding and (not others or _may_be_here(cwd)):
        return settings.place
    return min(others & rooted or others)


def _may_be_here(cwd: str) -> bool:
    """Whether a folder may exist on this machine; true if it cannot be read."""
    try:
        return Path(cwd).is_dir()
    except PermissionError:
        return True


def _below(cwd: str, root: str) -> bool:
    return PurePosixPath(os.path.normpath(cwd)).is_relative_to(os.path.normpath(root))
