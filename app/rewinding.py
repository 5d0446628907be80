"""Pure: how a session goes on after an earlier point, so that nothing that is done runs again.

What comes after the point in its block, and in each block around it, runs anew. The outermost loop
around the point gets a next run, opened at the point's iteration; the loops inside it are opened in
there, each at its own. What counts as done has arrived in them already, and who refers to it is led
to the older run.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from pydantic import JsonValue

from app.positions import (
    At,
    Known,
    Position,
    address_of,
    home,
    is_done,
    newest,
    position_of,
    refuse,
    within,
)
from app.program import Action, Loop, Node, Program, Step, before, needs_of, path_of, sinks_of
from app.reasons import ReasonCode
from app.records import TurnRecord
from app.speaking import Kept, threads_at

__all__ = ["Rewind", "address_named", "gone_on", "had_its_turns", "rewound"]

#: In the place of a node: all that is done in the block counts.
_AS_IT_STANDS = ""
#: A loop that ended so has had its turns, and gets them anew.
_HAD_ITS_TURNS = (ReasonCode.MAX_ITERATIONS, ReasonCode.NO_PROGRESS, ReasonCode.TERMINATED)


class Rewind(NamedTuple):
    """What the script is told: joins of the outermost block, and the turns to open, in order."""

    again: list[JsonValue]
    levels: list[JsonValue]
    #: Where each conversation goes on; None leaves them as they are.
    threads: dict[str, str] | None


def address_named(program: Program, said: str, known: Known) -> str:
    """The address of the point that somebody named. Raises PositionRefused."""
    return address_of(program, known, position_of(program, said, known))


def rewound(program: Program, said: str, known: Known, *, failed: bool) -> Rewind | None:
    """What runs anew so that the session goes on after what was said.

    None where it stands there anyway, and a plain resume does it. Raises PositionRefused for a
    point where the session never was, or that nothing can follow.
    """
    look = _Look(program, known, said)
    point = look.settled(position_of(program, said, known))
    if not failed and look.stands_at(point):
        return None
    anew = look.anew(point)
    done = {node.id for node in program.body if is_done(known, node, "")} - anew
    # What stands beside the point in a stopped session goes on where it is.
    run = {node.id for node in program.body} - done if failed else anew
    beside = {node.id for node in program.body} - run
    threads = threads_at(program, known, look.all_kept(point, beside))
    return Rewind(_joins(program.body, run, done), look.levels(point), threads)


def gone_on(program: Program, known: Known) -> Rewind:
    """What runs anew so that a failed flow goes on where it failed, in the iterations it was in.

    A loop that has had its turns begins anew with as many, where it stands. Nothing that was said
    is undone.
    """
    look = _Look(program, known, "")
    point = look.failed_at()
    done = look.done(point)
    run = {node.id for node in program.body} - done
    return Rewind(_joins(program.body, run, done), look.levels(point), None)


def had_its_turns(loop: TurnRecord) -> bool:
    """Whether a loop ended for itself and begins anew; else it goes on where it failed."""
    return loop.reason is not None and loop.reason.code in _HAD_ITS_TURNS


class _Look:
    """One look at what the session came to."""

    def __init__(self, program: Program, known: Known, said: str) -> None:
        self._program = program
        self._known = known
        self._said = said

    def settled(self, point: Position) -> Position:
        """The same point, as what it led to: a loop that ended, or the iteration after this one."""
        node = self._node(point)
        if not is_done(self._known, node, point.block):
            refuse(self._said, f"{node.id!r} is not done there; name something that is")
        if isinstance(node, Step) and self._ended_turn(node, point):
            if node.ends == "iteration":
                return self._next(point)
            return self.settled(self._around(point))
        if self._kept(point) == {n.id for n in self._body(point.around)}:
            if not point.around:
                refuse(self._said, "nothing comes after it; name something before it")
            return self._next(point)
        return point

    def failed_at(self) -> Position:
        """How far a sequence came that failed: into the loops in which it failed."""
        point = Position((), _AS_IT_STANDS)
        while (failed := self._failed_loop(point)) is not None:
            point = Position((*point.around, failed), _AS_IT_STANDS)
        if not point.around:
            return point
        body = self._body(point.around)
        passed_on = any(self._passed_on(node, point) for node in body)
        if passed_on or self._kept(point) == {node.id for node in body}:
            return self._next(point)
        return point

    def _failed_loop(self, point: Position) -> At | None:
        """The loop of the point's block that failed for what is in it, and where that stood."""
        undone = (n for n in self._body(point.around) if not is_done(self._known, n, point.block))
        node = next(undone, None)
        if not isinstance(node, Loop):
            return None
        turn = newest(self._known, node, point.block)
        record = self._known.turn(turn)
        if record is None or record.iteration == 0:
            return None
        if had_its_turns(record):
            return None
        return At(turn, record.iteration)

    def _passed_on(self, node: Node, point: Position) -> bool:
        """Whether a continue has ended the iteration."""
        return isinstance(node, Step) and node.ends == "iteration" and self._ended_turn(node, point)

    def done(self, point: Position) -> set[str]:
        """What counts as done in the outermost block."""
        return self._kept(_cut(point, -1))

    def _ended_turn(self, node: Step, point: Position) -> bool:
        record = self._known.step(newest(self._known, node, point.block))
        ending = node.action in (Action.BREAK, Action.JUDGE)
        return ending and record is not None and record.verdict == "accept"

    def _next(self, point: Position) -> Position:
        turn, iteration = point.around[-1]
        return Position((*point.around[:-1], At(turn, iteration + 1)), None)

    def _around(self, point: Position) -> Position:
        """The loop that ended there, as a point; its newest run must be that one."""
        turn = point.around[-1].turn
        outer = Position(point.around[:-1], path_of(turn).rpartition("/")[2])
        now = newest(self._known, self._node(outer), outer.block)
        if now != turn:
            refuse(self._said, f"it ended {turn!r}, which has run again as {now!r}; name that")
        return outer

    def stands_at(self, point: Position) -> bool:
        """Whether nothing after the point has begun."""
        block = ""
        for turn, iteration in point.around:
            record = self._known.turn(turn)
            outer = self._program.node(path_of(turn))
            stands = record and record.state == "open" and record.iteration == iteration
            if not stands or newest(self._known, outer, block) != turn:
                return False
            block = f"{turn}[{iteration}]"
        body = self._body(point.around)
        after = _after(body, point.node)
        return all(self._untouched(node, block) for node in body if node.id in after)

    def _untouched(self, node: Node, block: str) -> bool:
        address = newest(self._known, node, block)
        if isinstance(node, Step):
            turn = self._known.turn(address) if node.for_each is not None else None
            record = self._known.step(address)
            return turn is None and (record is None or record.state == "ready")
        turn = self._known.turn(address)
        inside = f"{address}[1]"
        fresh = turn is not None and turn.state == "open" and turn.iteration == 1
        return turn is None or (fresh and all(self._untouched(n, inside) for n in node.body))

    def anew(self, point: Position) -> set[str]:
        """The outermost nodes that run anew."""
        if not point.around:
            return set(_after(self._program.body, point.node))
        name = path_of(point.around[0].turn)
        return {name, *_after(self._program.body, name)}

    def levels(self, point: Position) -> list[JsonValue]:
        """The turns to open, each in the one before it."""
        return [self._level(point, depth) for depth in range(len(point.around))]

    def all_kept(self, point: Position, outermost: set[str]) -> Kept:
        """What counts as done in the outermost block, and in each of the turns."""
        inside = [self._kept_inside(point, depth) for depth in range(len(point.around))]
        return Kept(point.around, [outermost, *inside])

    def _kept_inside(self, point: Position, depth: int) -> set[str]:
        """What counts as done in a turn, without the loop in there that is opened."""
        kept = self._kept(_cut(point, depth))
        if depth + 1 < len(point.around):
            kept -= {path_of(point.around[depth + 1].turn).rpartition("/")[2]}
        return kept

    def _level(self, point: Position, depth: int) -> JsonValue:
        turn, iteration = point.around[depth]
        record = self._known.turn(turn)
        assert record is not None
        loop = self._program.node(path_of(turn))
        assert isinstance(loop, Loop)
        kept = self._kept_inside(point, depth)
        block = f"{turn}[{iteration}]"
        homes: dict[str, JsonValue] = {name: home(self._known, block, name) for name in kept}
        return {
            "node": loop.id,
            "run": turn,
            "iteration": iteration,
            "max": record.max,
            "left": record.left,
            "kept": homes,
            "joins": _joins(loop.body, {n.id for n in loop.body} - kept, kept),
            "widths": self._widths(loop, homes),
        }

    def _widths(self, loop: Loop, homes: dict[str, JsonValue]) -> JsonValue:
        """Where the widths of what runs anew lie, as far as their lists count as done."""
        needs = needs_of(loop.body)
        found: dict[str, JsonValue] = {}
        for node in loop.body:
            if isinstance(node, Step) and isinstance(node.for_each, str) and node.id not in homes:
                lists = [str(homes[need]) for need in needs[node.id] if need in homes]
                found |= {node.id: within(lists[0], node.id)} if lists else {}
        return found

    def _kept(self, point: Position) -> set[str]:
        """What counts as done in the point's block."""
        body = self._body(point.around)
        if point.node is None:
            return set()
        undone = {n.id for n in body if not is_done(self._known, n, point.block)}
        undone |= {n.id for n in body if self._judged(n, body, undone, point)}
        anew = {name for n in undone for name in _after(body, n)} | undone
        return {n.id for n in body} - anew - set(_after(body, point.node))

    def _judged(
        self, node: Node, body: tuple[Node, ...], undone: set[str], point: Position
    ) -> bool:
        """Whether it is what a failed step said: a check, or a break out of what did not end."""
        if not isinstance(node, Step) or node.id in undone:
            return False
        if point.node == _AS_IT_STANDS and node.ends == "loop" and self._ended_turn(node, point):
            return True
        of = {n.origin.path for n in body if n.id in undone and n.origin is not None}
        if node.action is not Action.CHECK or node.origin is None or node.origin.path not in of:
            return False
        record = self._known.step(newest(self._known, node, point.block))
        return record is None or record.verdict != "accept"

    def _node(self, point: Position) -> Node:
        return next(n for n in self._body(point.around) if n.id == point.node)

    def _body(self, around: tuple[At, ...]) -> tuple[Node, ...]:
        if not around:
            return self._program.body
        loop = self._program.node(path_of(around[-1].turn))
        assert isinstance(loop, Loop)
        return loop.body


def _cut(point: Position, depth: int) -> Position:
    """The point as its turn at a depth sees it: the loop in there that is opened, or its node."""
    around = point.around[: depth + 1]
    if depth + 1 == len(point.around):
        return Position(around, point.node)
    return Position(around, path_of(point.around[depth + 1].turn).rpartition("/")[2])


def _after(body: tuple[Node, ...], name: str | None) -> Iterable[str]:
    """What waits for a node, however indirectly; all of the block where nothing is done."""
    earlier = before(body)
    return [n.id for n in body if name is None or name in earlier[n.id]]


def _joins(body: tuple[Node, ...], run: set[str], done: set[str]) -> list[JsonValue]:
    """For the block's own join, then for each node that runs: who has arrived already."""
    needs = needs_of(body)
    joins = {"": sinks_of(body)} | {name: needs[name] for name in needs if name in run}
    return [{"name": n, "done": [m for m in joins[n] if m in done]} for n in joins]
