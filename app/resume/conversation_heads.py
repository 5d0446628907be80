"""Finds each conversation's thread at the point from which a session resumes (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import NamedTuple

from app.domain.addresses import path_of
from app.domain.outcomes import Thread
from app.domain.program import Loop, Node, Program, Step
from app.history.points import At, Known, newest


class KeptNodes(NamedTuple):
    """The nodes that count as done in each block around the point, outermost first."""

    around: tuple[At, ...]
    #: One set per block (one more than turns), without the loops of the turns.
    nodes: Sequence[set[str]]


class _Last(NamedTuple):
    ended: int
    thread: Thread


def threads_at(program: Program, known: Known, kept: KeptNodes) -> dict[str, str]:
    """Returns the agent's thread (JSON) of each conversation that existed at a resume point."""
    talks = {n.conversation for _, n in program.walk() if isinstance(n, Step) and n.conversation}
    found = {talk: _Search(known, talk, kept).search(program.body) for talk in talks}
    return {
        talk: last.thread.model_dump_json(exclude_none=True)
        for talk, last in found.items()
        if last is not None and last.thread.id is not None
    }


class _Search:
    """Finds the last kept step of one conversation, from the newest backwards."""

    def __init__(self, known: Known, talk: str, kept: KeptNodes) -> None:
        self._known = known
        self._talk = talk
        self._kept = kept

    def search(self, body: tuple[Node, ...], depth: int = 0) -> _Last | None:
        """Search the block at a depth and the turns in it that contain the point."""
        around, nodes = self._kept
        block = around[depth - 1].block if depth else ""
        found = self._block([node for node in body if node.id in nodes[depth]], block)
        if depth == len(around):
            return found
        turn, iteration = around[depth]
        name = path_of(turn).rpartition("/")[2]
        inner = next(node.body for node in body if isinstance(node, Loop) and node.id == name)
        inside = self.search(inner, depth + 1) or self._iterations(inner, turn, iteration - 1)
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
    """The later one by time; `other`, which is later in the program, wins a tie."""
    if one is None or other is None:
        return one or other
    return other if other.ended >= one.ended else one
