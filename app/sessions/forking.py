"""Computes what runs in a fork, and the recorded folder from which it can continue (pure)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core import routing
from app.core.addresses import path_of
from app.core.folders import RecordedState
from app.core.program import Action, Loop, Node, Program, Step
from app.core.records import Origin, StepRecord
from app.errors import PositionRefused
from app.history.points import Known, Position, is_done, position_of, refuse
from app.sessions.resume import (
    ALL_DONE,
    Planner,
    joins_of,
    kept_addresses,
    kept_items,
    rewind_to_failure,
    threads_at,
)
from app.sessions.rewind import Rewind

#: A warning about a step or loop that failed, as the scripts write it.
_WARNING = re.compile(
    r"(?P<label>.+?)(?: \((?P<at>[^()\s]+)\))?(?: failed and| ended with \w+ and)?"
    r" was passed over(?::|$)"
)
#: What may follow the name of a node in an address; '' is its end.
_AFTER = ("", "~", "[", "#", "/")
#: What may change the folder; a check reads it.
_WRITERS = frozenset({Action.AGENT, Action.TOOL})


def changed_nodes(old: Program, new: Program) -> set[str]:
    """Returns the paths of the nodes that differ between two programs; ignores loop bodies."""
    before = {path: _own_fields(node) for path, node in old.walk()}
    after = {path: _own_fields(node) for path, node in new.walk()}
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def _own_fields(node: Node) -> object:
    excluded = {"body"} if isinstance(node, Loop) else None
    return node.model_dump(exclude=excluded)


def rewind_of_fork(program: Program, after: str | None, known: Known, anew: set[str]) -> Rewind:
    """Computes what a fork runs again: all after a point, and what depends on the nodes in `anew`.

    Without a point it continues where the session was. Raises PositionRefused if there is no such
    point, if nothing is left to run, or if what runs anew is done before the point in a loop.
    """
    if after is None and not anew and any(_is_flow_node(node) for node in program.body):
        rewind = rewind_to_failure(program, known)
        return _with_work(rewind, program)
    look = Planner(program, known, after or "")
    point, reruns = Position((), ALL_DONE), set[str]()
    if after is not None:
        # After the last step, what uses a changed input is left to run.
        point = look.advance(position_of(program, after, known), may_be_last=bool(anew))
        reruns = look.reruns(point)
        _check_loop(look, point, anew, after)
    again = {path.partition("/")[0] for path in anew}
    if point.around:
        again -= {path_of(point.around[0].turn)}
    affected = again | set(routing.dependents(program, sorted(again)))
    if point.around and path_of(point.around[0].turn) in affected:
        refuse(str(after), "what it depends on runs again; fork before its loop")
    reruns = look.with_lists(reruns | affected)
    body = program.body
    done = {node.id for node in body if is_done(known, node, "")} - reruns
    run = {node.id for node in body} - done
    threads = threads_at(program, known, look.kept_nodes(point, done))
    rewind = Rewind(joins_of(body, run, done), look.levels(point), threads)
    if after is None:
        keeps = kept_items(body, run, known)
        rewind = rewind._replace(keeps={name: keeps[name] for name in keeps.keys() - again})
    return _with_work(rewind if after is None else rewind.without_kept_items(), program)


class KeptOutcomes:
    """The outcomes of a session that its fork keeps; the steps of all others run again."""

    def __init__(self, rewind: Rewind, known: Known) -> None:
        #: The outermost nodes that run again.
        self.again = {join.name for join in rewind.again}
        self._opened = {level.node for level in rewind.levels[:1]}
        self._items = kept_addresses(rewind.keeps)
        for level in rewind.levels:
            self._items |= kept_addresses(level.keeps)
        self._parts = [
            Origin(run=o.run, opened=o.iteration, kept={**o.kept}) for o in rewind.levels
        ]
        for part in self._parts:  # which grows: a run may continue an older one
            turn = known.turn(part.run)
            if turn is not None and turn.origin is not None:
                self._parts.append(turn.origin)

    def __contains__(self, address: str) -> bool:
        """Whether the fork keeps the outcome of the step with this address."""
        first = path_of(address).partition("/")[0]
        if (first not in self.again and first not in self._opened) or address in self._items:
            return True
        return any(_is_part(address, part) for part in self._parts)


def _is_part(address: str, part: Origin) -> bool:
    """Whether an outcome is one of a run of a loop before the point at which another continues."""
    if address.startswith(f"{part.run}["):
        iteration, _, _ = address[len(part.run) + 1 :].partition("]")
        if int(iteration) < part.opened:
            return True
    nodes = (f"{block}/{name}" for name, block in part.kept.items())
    return any(address.startswith(node) and address[len(node) :][:1] in _AFTER for node in nodes)


def copied_warnings(program: Program, kept: KeptOutcomes, lines: Iterable[str]) -> list[str]:
    """Selects a session's warning lines about failures whose outcomes its fork copies."""
    labels = {node.label or node.id for node in program.body if node.id not in kept.again}
    found = []
    for line in lines:
        parts = _WARNING.match(line)
        if parts is None:
            continue
        if parts["at"] in kept if parts["at"] is not None else parts["label"] in labels:
            found.append(line)
    return found


def _is_flow_node(node: Node) -> bool:
    return node.origin is not None


def _with_work(rewind: Rewind, program: Program) -> Rewind:
    """The rewind, unless nothing runs in it. Raises PositionRefused."""
    if len(rewind.again) == 1 and not rewind.levels:
        last = program.body[-1]
        hint = f"all of its steps are done; name the step to continue after, before {last.id}"
        raise PositionRefused("after", None, hint)
    return rewind


def _check_loop(look: Planner, point: Position, anew: set[str], said: str) -> None:
    """Refuse a point in a loop whose earlier work would have to run again."""
    if not point.around:
        return
    name = path_of(point.around[0].turn)
    inside = {path for path in anew if path == name or path.startswith(f"{name}/")}
    if not inside:
        return
    kept = {f"{path_of(level.run)}/{node}" for level in look.levels(point) for node in level.kept}
    earlier = any(at.iteration > 1 for at in point.around)
    if earlier or inside & kept:
        first = min(inside)
        refuse(said, f"{first} refers to a changed input and is done in this loop; fork before it")


def steps_left(program: Program, rewind: Rewind) -> list[Step]:
    """Returns the steps that the fork may still run."""
    names = {join.name for join in rewind.again}
    return [
        node
        for path, node in program.walk()
        if isinstance(node, Step) and path.partition("/")[0] in names
    ]


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
