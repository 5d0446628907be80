"""Finds the recorded state of a working folder from which a fork can continue (pure)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.program import Action, Program, Step
from app.domain.records import StepRecord
from app.domain.workspaces import RecordedState
from app.resume.forking import KeptOutcomes

#: What may change the folder; a check reads it.
_WRITERS = frozenset({Action.AGENT, Action.TOOL})


class FolderWork(NamedTuple):
    """What the steps that may have changed the folder have recorded, read as it is asked for."""

    #: Their records, by address.
    records: Mapping[str, StepRecord]
    outcome: Callable[[str], Mapping[str, JsonValue]]
    #: Returns the digest of the folder before a step, if its diff is stored.
    diffed_from: Callable[[str], str | None]

    def after(self, address: str) -> str | None:
        """Return the digest of the folder after a step; None if there is none."""
        digest = self.outcome(address).get("digest")
        return str(digest) if digest else None

    def before(self, address: str) -> str | None:
        """Return the digest of the folder before a step; None if it is not recorded."""
        is_same = self.outcome(address).get("no_diff") == "unchanged"
        return self.after(address) if is_same else self.diffed_from(address)


class FolderState(NamedTuple):
    """The state from which a fork continues, or why there is none."""

    state: RecordedState | None
    why: str = ""
    #: Steps that run again in the fork, whose work is in the state already.
    ahead: tuple[str, ...] = ()


def writes_folder(program: Program, path: str) -> bool:
    """Whether a node of the program is a step that may change the session's folder."""
    node = program.node(path) if program.has(path) else None
    if not isinstance(node, Step):
        return False
    return (node.folder and node.action in _WRITERS) or node.action is Action.CHILD


def find_recorded_state(
    session: str, outcomes: KeptOutcomes, work: FolderWork, *, since_ms: int = 0
) -> FolderState:
    """Finds the folder's state after the last copied step; its `state` is None if unknown.

    Without such a step it is the state before the first one. Steps before `since_ms`, in ms since
    the epoch, were copied from a session with another folder. Without a state, the result says why.
    """
    begun = {at: one.since or one.ended or 0 for at, one in work.records.items()}
    ended = {at: one.ended or 0 for at, one in work.records.items()}
    kept = [at for at in work.records if at in outcomes]
    left = [at for at in work.records if at not in outcomes]
    if kept:
        last = max(kept, key=lambda at: (ended[at], at))
        found = _state(session, work.after(last), last, ended[last], "after")
        if found.state is None:
            return found
        ahead = [at for at in left if since_ms <= begun[at] < ended[last]]
        return found._replace(ahead=tuple(sorted(ahead, key=lambda at: (ended[at], at))))
    if not left:
        return FolderState(None, "no step has recorded its state")
    first = min(left, key=lambda at: (begun[at], at))
    return _state(session, work.before(first), first, begun[first], "before")


def _state(session: str, digest: str | None, step: str, at_ms: int, when: str) -> FolderState:
    kind, _, tree = (digest or "").partition(":")
    if not tree:
        return FolderState(None, f"its state {when} {step} was not recorded")
    if kind != "git":
        return FolderState(None, f"its state {when} {step} was recorded without git")
    return FolderState(RecordedState(session, tree, step, at_ms))
