"""Finds the recorded state of a working folder from which a fork can continue (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.program import Action, Program, Step
from app.domain.records import StepRecord
from app.domain.workspaces import RecordedState
from app.resume.forking import KeptOutcomes

#: What may change the folder; a check reads it.
_WRITERS = frozenset({Action.AGENT, Action.TOOL})


class FolderWork(NamedTuple):
    """What one step that may change the folder has recorded of it."""

    address: str
    record: StepRecord
    outcome: Mapping[str, JsonValue]
    #: The digest of the folder before it, if its diff is stored.
    before: str | None = None

    @property
    def after(self) -> str | None:
        """Return the digest of the folder after it; None if there is none."""
        digest = self.outcome.get("digest")
        return str(digest) if digest else None

    @property
    def start(self) -> str | None:
        """Return the digest of the folder before it; None if it is not recorded."""
        return self.after if self.outcome.get("no_diff") == "unchanged" else self.before

    def ended(self) -> tuple[int, str]:
        """Return a sort key: when the step ended, in ms since the epoch, and its address."""
        return self.record.ended or 0, self.address

    def started(self) -> tuple[int, str]:
        """Return a sort key: when the step was claimed, in ms since the epoch, and its address."""
        return self.record.since or self.record.ended or 0, self.address


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
    session: str, outcomes: KeptOutcomes, work: Iterable[FolderWork], *, since_ms: int = 0
) -> FolderState:
    """Returns the state of the folder after the last step whose outcome a fork copies.

    Without such a step it is the state before the first one. `work` has the steps of the session
    that may have changed its folder. Those before `since_ms`, in ms since the epoch, were copied
    from a session with another folder. Without a state, the result says why.
    """
    kept, left = list[FolderWork](), list[FolderWork]()
    for one in sorted(work, key=FolderWork.ended):
        (kept if one.address in outcomes else left).append(one)
    if kept:
        last = kept[-1]
        at_ms, address = last.ended()
        ahead = tuple(one.address for one in left if since_ms <= one.started()[0] < at_ms)
        found = _state(session, last.after, address, at_ms, "after")
        return found._replace(ahead=ahead) if found.state is not None else found
    if not left:
        return FolderState(None, "no step has recorded its state")
    first = min(left, key=FolderWork.started)
    at_ms, address = first.started()
    return _state(session, first.start, address, at_ms, "before")


def _state(session: str, digest: str | None, step: str, at_ms: int, when: str) -> FolderState:
    kind, _, tree = (digest or "").partition(":")
    if not tree:
        return FolderState(None, f"its state {when} {step} was not recorded")
    if kind != "git":
        return FolderState(None, f"its state {when} {step} was recorded without git")
    return FolderState(RecordedState(session, tree, step, at_ms))
