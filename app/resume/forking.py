"""Computes what runs in a fork: a copy of a session that continues from a point of it (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from app.domain import routing
from app.domain.addresses import path_of
from app.domain.program import Loop, Node, Program, Step
from app.errors import PositionRefused
from app.history.points import Known, Position, is_done, position_of, refuse
from app.resume.conversation_heads import threads_at
from app.resume.plan import ALL_DONE, Planner, joins_of, rewind_to_failure
from app.resume.rewind import Rewind

#: A warning about a step or loop that failed, as the scripts write it.
_WARNING = re.compile(
    r"(?P<label>.+?)(?: \((?P<at>[^()\s]+)\))?(?: failed and| ended with \w+ and)?"
    r" was passed over(?::|$)"
)


def changed_nodes(old: Program, new: Program) -> set[str]:
    """Returns the paths of the nodes that differ between two programs; ignores loop bodies."""
    before = {path: _own_fields(node) for path, node in old.walk()}
    after = {path: _own_fields(node) for path, node in new.walk()}
    return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}


def _own_fields(node: Node) -> object:
    excluded = {"body"} if isinstance(node, Loop) else None
    return node.model_dump(exclude=excluded)


def rewind_of_fork(program: Program, after: str | None, known: Known, anew: set[str]) -> Rewind:
    """Computes from where a fork runs: after a point, and all that depends on the changed nodes.

    Without a point it continues where the session was. Raises PositionRefused if there is no such
    point, if nothing is left to run, or if what runs anew is done before the point in a loop.
    """
    if after is None and not anew and any(_is_flow_node(node) for node in program.body):
        rewind = rewind_to_failure(program, known)
        return _with_work(rewind, program)
    look = Planner(program, known, after or "")
    point, reruns = Position((), ALL_DONE), set[str]()
    if after is not None:
        point = look.advance(position_of(program, after, known))
        reruns = look.reruns(point)
        _check_loop(look, point, anew, after)
    again = {path.partition("/")[0] for path in anew}
    if point.around:
        again -= {path_of(point.around[0].turn)}
    affected = again | set(routing.dependents(program, sorted(again)))
    if point.around and path_of(point.around[0].turn) in affected:
        refuse(str(after), "what it depends on runs again; fork before its loop")
    reruns |= affected
    body = program.body
    done = {node.id for node in body if is_done(known, node, "")} - reruns
    run = {node.id for node in body} - done
    threads = threads_at(program, known, look.kept_nodes(point, done))
    return _with_work(Rewind(joins_of(body, run, done), look.levels(point), threads), program)


def copied_warnings(program: Program, rewind: Rewind, lines: Iterable[str]) -> list[str]:
    """Returns the warnings of a session about failures whose outcomes its fork copies."""
    again = {join.name for join in rewind.again}
    kept = {node.label or node.id for node in program.body if node.id not in again}
    found = []
    for line in lines:
        parts = _WARNING.match(line)
        if parts is None:
            continue
        if parts["at"] is None and parts["label"] in kept:
            found.append(line)
        if parts["at"] is not None and _is_copied(parts["at"], rewind, again):
            found.append(line)
    return found


def _is_copied(address: str, rewind: Rewind, again: set[str]) -> bool:
    """Whether the outcome of a step within a loop is one that the fork keeps."""
    for level in rewind.levels:
        if not address.startswith(f"{level.run}["):
            break
        iteration, _, inside = address[len(level.run) + 1 :].partition("]/")
        if int(iteration) != level.iteration:
            return int(iteration) < level.iteration
        if path_of(inside).partition("/")[0] in level.kept:
            return True
    else:
        return not rewind.levels and path_of(address).partition("/")[0] not in again
    first = path_of(address).partition("/")[0]
    return first not in again and first != rewind.levels[0].node


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
