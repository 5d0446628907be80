"""Computes how a session resumes after an earlier point without repeating finished work (pure).

Everything after the point runs again, in its block and in each block around it. The outermost loop
around the point gets its next run, opened at the point's iteration; inner loops are opened inside
it, each at its own iteration. Nodes that count as done are in the arrived sets of the new run, and
references to them lead to the older run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

from app.core import routing
from app.core.addresses import block_of, path_of, within
from app.core.outcomes import Thread
from app.core.program import (
    Action,
    Loop,
    Node,
    Program,
    Step,
    items_maker,
    needs_of,
    sinks_of,
    transitive_needs,
)
from app.core.records import TurnRecord
from app.core.routing import Join
from app.errors import InvalidDocument, PositionRefused
from app.history.points import (
    FIELD,
    At,
    Item,
    Known,
    Position,
    address_of,
    home,
    is_done,
    item_of,
    newest,
    position_of,
    refuse,
)
from app.sessions.rewind import KeptItems, Level, Rewind
from leadhand.models.verdicts import ReasonCode

_NO_LOOP = "this resume opens no loop, and none is open; leave it out"
#: Items in these states have an outcome with which the list can go on.
_DONE = frozenset({"succeeded", "skipped"})
#: Used as a node's name: everything that is done in the block counts.
ALL_DONE = ""
#: A loop that ended for one of these reasons gets a new allowance of iterations.
_USED_UP = (
    ReasonCode.MAX_ITERATIONS,
    ReasonCode.NO_PROGRESS,
    ReasonCode.TERMINATED,
    ReasonCode.JUDGE_UNCLEAR,
    ReasonCode.CONTESTED,
)


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


def kept_items(
    body: Sequence[Node],
    again: Collection[str],
    known: Known,
    block: str = "",
    *,
    redo: Item | None = None,
) -> dict[str, KeptItems]:
    """Returns, by name, what the for_each nodes of a block keep that are among those to run again.

    A list is kept unless it or the arguments of its items may change because a node that it needs
    runs again, too. Its items that are done are kept, but if all are, all run again: a user
    asked for it. `redo` is one that runs again although it is done.
    """
    needs, found = needs_of(tuple(body)), dict[str, KeptItems]()
    for node in body:
        if not isinstance(node, Step) or node.for_each is None or node.id not in again:
            continue
        run = newest(known, node, block)
        if any(need in again for need in needs[node.id]):
            continue
        done = _done_items(known, run)
        items = tuple(item for item in done if redo != Item(run, item))
        width = _width(known, run)
        if width:
            found[node.id] = KeptItems(run, items if len(items) < width else ())
    return found


def _width(known: Known, run: str) -> int:
    turn = known.turn(run)
    return turn.width if turn is not None and turn.each else 0


def _done_items(known: Known, run: str) -> list[int]:
    addresses = [f"{run}#{item}" for item in range(1, _width(known, run) + 1)]
    records = known.steps(addresses) if addresses else {}
    return [
        item
        for item, address in enumerate(addresses, 1)
        if address in records and records[address].state in _DONE
    ]


def kept_addresses(keeps: Mapping[str, KeptItems]) -> frozenset[str]:
    """Returns the addresses of the outcomes that are kept."""
    return frozenset(f"{kept.run}#{item}" for kept in keeps.values() for item in kept.items)


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


def point_address(program: Program, said: str, known: Known) -> str:
    """Returns the address of a named resume point. Raises PositionRefused."""
    return address_of(program, known, position_of(program, said, known))


def rewind_to(program: Program, said: str, known: Known, *, failed: bool) -> Rewind | None:
    """Computes what runs again if a session resumes after a named point; None if it is there now.

    A plain resume suffices then. Raises PositionRefused if the session never reached the point, or
    if nothing can follow it.
    """
    look = Planner(program, known, said)
    point = look.advance(position_of(program, said, known))
    if not failed and look.is_at(point):
        return None
    return look.rewind(point, look.reruns(point), failed=failed).without_kept_items()


def rewind_before(program: Program, said: str, known: Known, *, failed: bool) -> Rewind | None:
    """Computes what runs again if a session resumes before a step; None if the step is ready.

    Within a loop the steps beside it run again, too. If the step is ready to run, a plain resume
    suffices. Of a for_each, and before an item of one, the other items that are done are kept.
    Raises PositionRefused if it has not run.
    """
    name, item = item_of(program, said, known)
    look = Planner(program, known, said, item)
    found = position_of(program, name, known)
    if not look.has_started(found):
        refuse(said, "it has not run; resume the session without it")
    if not failed and look.is_ready(found):
        return None
    if not found.around:
        return look.rewind(found, look.reruns(found) | {str(found.node)}, failed=failed)
    before = look.point_before(found)
    return look.rewind(before, look.reruns(before), failed=failed)


def rewind_to_failure(program: Program, known: Known) -> Rewind:
    """Computes what runs again if a failed flow resumes where it failed.

    A loop that has used up its iterations gets the same number again. Conversations are kept.
    """
    look = Planner(program, known, "")
    point = look.failure_point()
    done_outermost = look.done_outermost(point)
    run = {node.id for node in program.body} - done_outermost
    keeps = kept_items(program.body, run, known)
    return Rewind(joins_of(program.body, run, done_outermost), look.levels(point), None, keeps)


def rewind_failed(
    program: Program, failed: Iterable[str], finished: Iterable[str], known: Known
) -> Rewind:
    """Computes what runs again if a failed graph resumes: what failed or did not run, and after it.

    `failed` and `finished` are outermost nodes. Of a for_each the items that are done are kept.
    """
    affected = routing.dependents(program, failed)
    joins = routing.joins_for_rerun(program, affected, finished)
    keeps = kept_items(program.body, {join.name for join in joins}, known)
    return Rewind(joins, keeps=keeps)


def used_its_iterations(loop: TurnRecord) -> bool:
    """Whether a loop failed because it used all its iterations, so that it restarts."""
    return loop.reason is not None and loop.reason.code in _USED_UP


class Planner:
    """Computes a rewind from the session's records."""

    def __init__(self, program: Program, known: Known, said: str, redo: Item | None = None) -> None:
        self._program = program
        self._known = known
        self._said = said
        self._redo = redo

    def rewind(self, point: Position, reruns: set[str], *, failed: bool) -> Rewind:
        """Compute what runs again in a resume after a point, with outermost nodes `reruns`."""
        body, reruns = self._program.body, self.with_lists(reruns)
        done = {node.id for node in body if is_done(self._known, node, "")} - reruns
        # In a stopped session, nodes beside the point continue where they are.
        run = {node.id for node in body} - done if failed else reruns
        beside = {node.id for node in body} - run
        threads = threads_at(self._program, self._known, self.kept_nodes(point, beside))
        keeps = kept_items(body, run, self._known, redo=self._redo)
        return Rewind(joins_of(body, run, done), self.levels(point), threads, keeps)

    def with_lists(self, reruns: set[str]) -> set[str]:
        """Return these outermost nodes, and those that make their lists and were skipped."""
        makers = (items_maker(self._program, n) for n in self._program.body if n.id in reruns)
        return reruns | {maker.id for maker in makers if maker and self._was_skipped(maker)}

    def _was_skipped(self, step: Step) -> bool:
        record = self._known.step(newest(self._known, step, ""))
        return record is not None and record.state == "skipped"

    def point_before(self, point: Position) -> Position:
        """Return the position after the last node that the node at a position depends on."""
        needs = needs_of(self._body(point.around))[str(point.node)]
        return Position(point.around, needs[-1] if needs else None)

    def has_started(self, point: Position) -> bool:
        """Whether the node at a position, a step or a loop, has a record."""
        address = newest(self._known, self._node(point), point.block)
        return self._known.step(address) is not None or self._known.turn(address) is not None

    def is_ready(self, point: Position) -> bool:
        """Whether the node at a position is a step that waits for a worker."""
        record = self._known.step(newest(self._known, self._node(point), point.block))
        return record is not None and record.state == "ready"

    def advance(self, point: Position, *, may_be_last: bool = False) -> Position:
        """Move a position at the end of an iteration to the next one, or behind its ended loop.

        Raises PositionRefused if its node is not done, or if nothing comes after it unless it
        `may_be_last`.
        """
        node = self._node(point)
        if not is_done(self._known, node, point.block):
            refuse(self._said, f"{node.id!r} is not done there; name a node that is")
        if isinstance(node, Step) and self._ends_turn(node, point):
            if node.ends == "iteration":
                return self._next(point)
            return self.advance(self._around(point), may_be_last=may_be_last)
        if self._kept(point) == {n.id for n in self._body(point.around)}:
            if point.around:
                return self._next(point)
            if not may_be_last:
                refuse(self._said, "nothing comes after it; name a point before it")
        return point

    def failure_point(self) -> Position:
        """Return the point where a failed sequence stopped, inside the loops that failed."""
        point = Position((), ALL_DONE)
        while (failed := self._failed_loop(point)) is not None:
            point = Position((*point.around, failed), ALL_DONE)
        if not point.around:
            return point
        body = self._body(point.around)
        passed_on = any(self._was_continued(node, point) for node in body)
        if passed_on or self._kept(point) == {node.id for node in body}:
            return self._next(point)
        return point

    def _failed_loop(self, point: Position) -> At | None:
        """The loop of the point's block that failed because of a node in it, with its iteration."""
        undone = (n for n in self._body(point.around) if not is_done(self._known, n, point.block))
        node = next(undone, None)
        if not isinstance(node, Loop):
            return None
        turn = newest(self._known, node, point.block)
        record = self._known.turn(turn)
        if record is None or record.iteration == 0:
            return None
        if used_its_iterations(record):
            return None
        return At(turn, record.iteration)

    def _was_continued(self, node: Node, point: Position) -> bool:
        """Whether a continue has ended the iteration."""
        return isinstance(node, Step) and node.ends == "iteration" and self._ends_turn(node, point)

    def done_outermost(self, point: Position) -> set[str]:
        """Return the ids of the outermost nodes that count as done in a resume at a point."""
        return self._kept(_point_at(point, -1))

    def _ends_turn(self, node: Step, point: Position) -> bool:
        record = self._known.step(newest(self._known, node, point.block))
        ending = node.action in (Action.BREAK, Action.JUDGE)
        return ending and record is not None and record.verdict == "accept"

    def _next(self, point: Position) -> Position:
        turn, iteration = point.around[-1]
        return Position((*point.around[:-1], At(turn, iteration + 1)), None)

    def _around(self, point: Position) -> Position:
        """The loop that ended at the point, as a point; it must be the loop's newest run."""
        turn = point.around[-1].turn
        outer = Position(point.around[:-1], path_of(turn).rpartition("/")[2])
        now = newest(self._known, self._node(outer), outer.block)
        if now != turn:
            refuse(self._said, f"it ended {turn!r}, which has run again as {now!r}; name that")
        return outer

    def is_at(self, point: Position) -> bool:
        """Whether the session is at this point: no node after it has started."""
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

    def reruns(self, point: Position) -> set[str]:
        """Return the ids of outermost nodes to run again after a point: its loop and dependents."""
        if not point.around:
            return set(_after(self._program.body, point.node))
        name = path_of(point.around[0].turn)
        return {name, *_after(self._program.body, name)}

    def levels(self, point: Position) -> tuple[Level, ...]:
        """Return the loop iterations around a point that a resume opens, outermost first."""
        return tuple(self._level(point, depth) for depth in range(len(point.around)))

    def kept_nodes(self, point: Position, outermost: set[str]) -> KeptNodes:
        """Return the nodes that the resume keeps as done, in each block around the point."""
        inside = [self._kept_inside(point, depth) for depth in range(len(point.around))]
        return KeptNodes(point.around, [outermost, *inside])

    def _kept_inside(self, point: Position, depth: int) -> set[str]:
        """The nodes that count as done in a turn, without the inner loop that is opened."""
        kept = self._kept(_point_at(point, depth))
        if depth + 1 < len(point.around):
            kept -= {path_of(point.around[depth + 1].turn).rpartition("/")[2]}
        return kept

    def _level(self, point: Position, depth: int) -> Level:
        turn, iteration = point.around[depth]
        record = self._known.turn(turn)
        assert record is not None
        loop = self._program.node(path_of(turn))
        assert isinstance(loop, Loop)
        kept = self._kept_inside(point, depth)
        block = f"{turn}[{iteration}]"
        homes = {name: home(self._known, block, name) for name in kept}
        again = {node.id for node in loop.body} - kept
        return Level(
            node=loop.id,
            run=turn,
            iteration=iteration,
            max=record.max - (record.recheck > iteration),
            left=record.left,
            recheck=record.recheck if 0 < record.recheck <= iteration else None,
            kept=homes,
            joins=joins_of(loop.body, again, kept),
            widths=self._widths(loop, homes),
            keeps=kept_items(loop.body, again, self._known, block, redo=self._redo),
        )

    def _widths(self, loop: Loop, homes: Mapping[str, str]) -> dict[str, str]:
        """Addresses of the widths of for_each nodes that run again and whose lists are done."""
        needs = needs_of(loop.body)
        found: dict[str, str] = {}
        for node in loop.body:
            if isinstance(node, Step) and isinstance(node.for_each, str) and node.id not in homes:
                lists = [homes[need] for need in needs[node.id] if need in homes]
                found |= {node.id: within(lists[0], node.id)} if lists else {}
        return found

    def _kept(self, point: Position) -> set[str]:
        """The nodes that count as done in the point's block."""
        body = self._body(point.around)
        if point.node is None:
            return set()
        undone = {n.id for n in body if not is_done(self._known, n, point.block)}
        undone |= {n.id for n in body if self._judges_failure(n, body, undone, point)}
        reruns = {name for n in undone for name in _after(body, n)} | undone
        return {n.id for n in body} - reruns - set(_after(body, point.node))

    def _judges_failure(
        self, node: Node, body: tuple[Node, ...], undone: set[str], point: Position
    ) -> bool:
        """Whether a node decided about a failed one: its check, or a break out of an open loop."""
        if not isinstance(node, Step) or node.id in undone:
            return False
        if point.node == ALL_DONE and node.ends == "loop" and self._ends_turn(node, point):
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


def _point_at(point: Position, depth: int) -> Position:
    """The point seen from the turn at a depth: the inner loop that is opened, or its node."""
    around = point.around[: depth + 1]
    if depth + 1 == len(point.around):
        return Position(around, point.node)
    return Position(around, path_of(point.around[depth + 1].turn).rpartition("/")[2])


def _after(body: tuple[Node, ...], name: str | None) -> Iterable[str]:
    """The nodes that depend on a node, also indirectly; all of the block if `name` is None."""
    earlier = transitive_needs(body)
    return [n.id for n in body if name is None or name in earlier[n.id]]


def joins_of(body: tuple[Node, ...], run: set[str], done_outermost: set[str]) -> tuple[Join, ...]:
    """Returns, for each node that runs again, which of the nodes it waits for are done already."""
    needs = needs_of(body)
    joins = {"": sinks_of(body)} | {name: needs[name] for name in needs if name in run}
    return tuple(Join(n, tuple(m for m in joins[n] if m in done_outermost)) for n in joins)
