"""Pure: where each conversation stood at a point of a session that it goes on from."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from app.outcomes import Thread
from app.positions import At, Known, newest
from app.program import Loop, Node, Program, Step, path_of


class Kept(NamedTuple):
    """What counts as done: the turns around the point, and nodes in each block, outermost first."""

    around: tuple[At, ...]
    #: One set more than there are turns; the turns' own loops are not among them.
    nodes: Sequence[set[str]]


class _Last(NamedTuple):
    ended: int
    thread: Thread


def threads_at(program: Program, known: Known, kept: Kept) -> dict[str, str]:
    """By conversation, where it goes on, as the store keeps it; without those that begin anew."""
    talks = {n.conversation for _, n in program.walk() if isinstance(n, Step) and n.conversation}
    found = {talk: _Look(known, talk, kept).cut(program.body) for talk in talks}
    return {
        talk: last.thread.model_dump_json(exclude_none=True)
        for talk, last in found.items()
        if last is not None and last.thread.id is not None
    }


class _Look:
    """Who of what is kept spoke last in one conversation; what was said before that is not read."""

    def __init__(self, known: Known, talk: str, kept: Kept) -> None:
        self._known = known
        self._talk = talk
        self._kept = kept

    def cut(self, body: tuple[Node, ...], depth: int = 0) -> _Last | None:
        """In the block at a depth, and in the turns in there that lie around the point."""
        around, nodes = self._kept
        block = around[depth - 1].block if depth else ""
        found = self._block([node for node in body if node.id in nodes[depth]], block)
        if depth == len(around):
            return found
        turn, iteration = around[depth]
        name = path_of(turn).rpartition("/")[2]
        inner = next(node.body for node in body if isinstance(node, Loop) and node.id == name)
        inside = self.cut(inner, depth + 1) or self._iterations(inner, turn, iteration - 1)
        return _later(found, inside)

    def _block(self, body: Sequence[Node], block: str) -> _Last | None:
        found = [self._node(node, block) for node in body if self._speaks(node)]
        return reduce(_later, found, None)

    def _iterations(self, body: tuple[Node, ...], turn: str, last: int) -> _Last | None:
        found = (self._block(body, f"{turn}[{i}]") for i in range(last, 0, -1))
        return next((one for one in found if one is not None), None)

    def _node(self, node: Node, block: str) -> _Last | None:
        address = newest(self._known, node, block)
        turn = self._known.turn(address)
        if isinstance(node, Loop):
            return self._iterations(node.body, address, turn.iteration if turn else 0)
        if turn is None:
            return self._step(address)
        items = (self._step(f"{address}#{item}") for item in range(1, turn.width + 1))
        return reduce(_later, items, None)

    def _step(self, address: str) -> _Last | None:
        record, thread = self._known.step(address), self._known.thread(address)
        if record is None or record.state == "failed" or thread is None:
            return None
        return _Last(record.ended or 0, thread)

    def _speaks(self, node: Node) -> bool:
        if isinstance(node, Loop):
            return any(self._speaks(inner) for inner in node.body)
        return node.conversation == self._talk


def _later(one: _Last | None, other: _Last | None) -> _Last | None:
    """Of two of whom the other stands later in the program, as far as time does not say."""
    if one is None or other is None:
        return one or other
    return other if other.ended >= one.ended else one
