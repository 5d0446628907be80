"""Pure: which loops a resume opens at once, and whether a ceiling that is named takes effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from app.errors import InvalidDocument, PositionRefused
from app.positions import FIELD, within
from app.program import Loop, Node, Program, block_of, needs_of, path_of
from app.records import TurnRecord

_NO_LOOP = "no loop is under way or opened by this resume; leave it out"


def opened_at_once(
    program: Program, again: Sequence[JsonValue], levels: Sequence[JsonValue]
) -> set[str]:
    """The paths of the loops that are opened by what runs anew, outermost ones have no `/`."""
    found = set(_begun(program.body, "", again))
    for level in levels:
        assert isinstance(level, dict)
        path, joins = path_of(str(level["run"])), level["joins"]
        loop = program.node(path)
        assert isinstance(loop, Loop)
        assert isinstance(joins, list)
        found |= {path, *_begun(loop.body, path, joins)}
    return found


def _begun(body: tuple[Node, ...], block: str, joins: Sequence[JsonValue]) -> Iterator[str]:
    """The loops whose needs are all done, with those that their bodies begin with."""
    needs = needs_of(body)
    for join in joins:
        assert isinstance(join, dict)
        done, name = join["done"], str(join["name"])
        assert isinstance(done, list)
        if name in needs and set(needs[name]) <= set(done):
            node = next(node for node in body if node.id == name)
            yield from _with_first(node, within(block, name))


def _with_first(node: Node, path: str) -> Iterator[str]:
    if not isinstance(node, Loop):
        return
    yield path
    needs = needs_of(node.body)
    for inner in node.body:
        if not needs[inner.id]:
            yield from _with_first(inner, within(path, inner.id))


def under_way(turns: Mapping[str, TurnRecord]) -> dict[str, int]:
    """The outermost loops that are open, each with its iteration."""
    return {
        id_: turn.iteration
        for id_, turn in turns.items()
        if id_ and not block_of(id_) and turn.state == "open" and not turn.each
    }


def check_ceiling(after: str | None, loop: JsonValue, opened: set[str], most: JsonValue) -> None:
    """Raises PositionRefused, InvalidDocument where the loop that is meant is not opened."""
    if isinstance(loop, str):
        way = f"it is for loop {loop!r}, which reached its ceiling"
        if loop not in opened and after is not None:
            ways = "leave `after` out, or name a point in it"
            raise PositionRefused(FIELD, after, f"max_iterations: {way}; {ways}")
        if loop not in opened:
            raise InvalidDocument("max_iterations", most, f"{way} and is not opened by this")
    elif not any("/" not in path for path in opened):
        raise InvalidDocument("max_iterations", most, _NO_LOOP)


def check_under_way(loops: Mapping[str, int], most: JsonValue) -> None:
    """Raises InvalidDocument where no loop is under way, or one is further than that."""
    if not loops:
        raise InvalidDocument("max_iterations", most, _NO_LOOP)
    for loop, iteration in loops.items():
        if isinstance(most, int) and most < iteration:
            way = f"{loop!r} is in iteration {iteration}; name that many at least"
            raise InvalidDocument("max_iterations", most, way)
