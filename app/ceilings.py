"""Pure: which loops a resume opens at once, so that a ceiling that is named for it takes effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from app.positions import within
from app.program import Loop, Node, Program, block_of, needs_of, path_of
from app.records import TurnRecord


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
