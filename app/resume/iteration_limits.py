"""Checks that a resume's `max_iterations` applies to a loop that it opens (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from app.domain.addresses import block_of, path_of
from app.domain.program import Loop, Node, Program, needs_of
from app.domain.records import TurnRecord
from app.domain.routing import Join
from app.errors import InvalidDocument, PositionRefused
from app.history.points import FIELD, within
from app.resume.rewind import Rewind

_NO_LOOP = "this resume opens no loop, and none is open; leave it out"


def loops_opened(program: Program, rewind: Rewind) -> set[str]:
    """Returns the paths of the loops that the resume opens at once; outermost ones have no `/`."""
    found = set(_ready_loops(program.body, "", rewind.again))
    for level in rewind.levels:
        path = path_of(level.run)
        loop = program.node(path)
        assert isinstance(loop, Loop)
        found |= {path, *_ready_loops(loop.body, path, level.joins)}
    return found


def _ready_loops(body: tuple[Node, ...], block: str, joins: Sequence[Join]) -> Iterator[str]:
    """Yields the loops whose needs are all done, and the loops at the start of their bodies."""
    needs = needs_of(body)
    for join in joins:
        if join.name in needs and set(needs[join.name]) <= set(join.done):
            node = next(node for node in body if node.id == join.name)
            yield from _with_first(node, within(block, join.name))


def _with_first(node: Node, path: str) -> Iterator[str]:
    if not isinstance(node, Loop):
        return
    yield path
    needs = needs_of(node.body)
    for inner in node.body:
        if not needs[inner.id]:
            yield from _with_first(inner, within(path, inner.id))


def open_loops(turns: Mapping[str, TurnRecord]) -> dict[str, int]:
    """Returns the open outermost loops, each with its iterations that count."""
    return {
        id_: turn.iteration - (0 < turn.recheck <= turn.iteration)
        for id_, turn in turns.items()
        if id_ and not block_of(id_) and turn.state == "open" and not turn.each
    }


def check_ceiling(after: str | None, loop: str | None, opened: set[str], most: int) -> None:
    """Raises an error if a resume with a new `max_iterations` does not open the loop it is for."""
    if loop is not None:
        way = f"it is for loop {loop!r}, which reached its ceiling"
        if loop not in opened and after is not None:
            ways = "leave `after` out, or name a point in this loop"
            raise PositionRefused(FIELD, after, f"max_iterations: {way}; {ways}")
        if loop not in opened:
            raise InvalidDocument("max_iterations", most, f"{way} and is not opened by this")
    elif not any("/" not in path for path in opened):
        raise InvalidDocument("max_iterations", most, _NO_LOOP)


def check_open_loops(loops: Mapping[str, int], most: int) -> None:
    """Raises InvalidDocument if no loop is open, or one is past the new maximum `most`."""
    if not loops:
        raise InvalidDocument("max_iterations", most, _NO_LOOP)
    for loop, iteration in loops.items():
        if most < iteration:
            way = f"{loop!r} is in iteration {iteration}; give at least that number"
            raise InvalidDocument("max_iterations", most, way)
