"""Parses points after which a session is to resume, and names of items (pure).

A point names the last node that counts as done: by address (`outer~1[2]/ask`), by address without
runs or iterations (`outer[2]/ask`, `outer/ask`: the newest), by zero-based positions in the blocks
of the program (`1[2]/0`), or by a unique label. In a graph the name of a step comes before all of
these, and positions are those of its document.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, NoReturn, Protocol

from app.core.addresses import path_of, within
from app.core.outcomes import Thread
from app.core.program import Loop, Node, Program, Step, graph_steps, items_maker
from app.core.records import Origin, StepRecord, TurnRecord
from app.core.routing import step_is_done, turn_is_done
from app.errors import PositionRefused
from app.history.records import home_of
from leadhand.models.text import list_first

_NUMBERS = re.compile(r"\[(\d+)\]")
_FLOW_SEGMENT = re.compile(r"^(\d+)(\[\d+\])?$")
FIELD = "after"
_SEGMENT = re.compile(r"^(?P<name>[^/#~\[\]]+)(~(?P<run>\d+))?(\[(?P<turn>\d+)\])?$")
_BY_NUMBER = re.compile(r"^\d+(\[\d+\])?([./]\d+(\[\d+\])?)*$")
_WAYS = "name an address, a label, or positions from 0 such as 1[2]/0"
#: Maximum number of labels in an error text.
_NAMED = 20
_ITEM = re.compile(r"^(?P<step>.+)#(?P<item>\d{1,9})$")


def is_flow(program: Program) -> bool:
    """Whether the program was compiled from a flow."""
    return any(node.origin is not None for node in program.body)


def steps_at(program: Program, segments: list[str]) -> list[str]:
    """Returns paths of the steps in a flow's file at zero-based positions; one per branch of `if`.

    The steps in a branch of an `if` are counted beneath it: `2/0` is the first step of a branch of
    the third step.
    """
    wanted = [match.group(1) for match in map(_FLOW_SEGMENT.match, segments) if match]
    found = [node.origin.path for _, node in program.walk() if node.origin is not None]
    return list(dict.fromkeys(path for path in found if _NUMBERS.findall(path) == wanted))


def end_of(program: Program, origin: str) -> str:
    """Returns the path of the last program node that a step of the flow's file was compiled to."""
    made = [
        (path, node, node.origin.path)
        for path, node in program.walk()
        if node.origin is not None and (node.origin.path + ".").startswith(origin + ".")
    ]
    first, node, _ = made[0]
    if isinstance(node, Loop):
        return first
    block = first.rpartition("/")[0]
    return next(path for path, _, _ in reversed(made) if path.rpartition("/")[0] == block)


def start_of(program: Program, origin: str) -> str:
    """Returns the path of the first node made from the flow step at a path like `steps[2]`."""
    return next(path for path, node in program.walk() if node.origin and node.origin.path == origin)


def with_turns(program: Program, path: str, segments: list[str]) -> list[str] | None:
    """Adds the iterations in `segments` to the names of a node's path; None if one fits no loop.

    The steps of a flat loop are in the same list as the loop: an iteration that is named at one of
    them belongs to the loop.
    """
    matches = [match for match in map(_FLOW_SEGMENT.match, segments) if match]
    numbers = [match.group(1) for match in matches]
    turns = {depth: match.group(2) for depth, match in enumerate(matches) if match.group(2)}
    names = path.split("/")
    loops = _loops_around(program, names)
    for at, place in loops.items():
        if numbers[: len(place)] == place:
            names[at] += turns.pop(len(place) - 1, "")
    for at, place in reversed(loops.items()):
        depth = len(place) - 1
        if numbers[:depth] == place[:depth] and numbers[depth] != place[depth]:
            names[at] += turns.pop(depth, "")
    return None if turns else names


def _loops_around(program: Program, names: list[str]) -> dict[int, list[str]]:
    """The positions in the file of the loops around a node."""
    nodes = [program.node("/".join(names[: at + 1])) for at in range(len(names))]
    return {
        at: _NUMBERS.findall(node.origin.path)
        for at, node in enumerate(nodes)
        if isinstance(node, Loop) and node.origin is not None
    }


class Known(Protocol):
    """The session's records that a point is resolved against."""

    def run(self, place: str) -> int:
        """Return the number of the newest run of the node at this address, 1 by default."""

    def step(self, address: str) -> StepRecord | None:
        """Return the record of the step at this address; None if there is none."""

    def steps(self, addresses: Sequence[str]) -> Mapping[str, StepRecord]:
        """Return the records of the steps at these addresses, without those that have none."""

    def turn(self, id_: str) -> TurnRecord | None:
        """Return the record of the run of a loop or for_each at this address; None without one."""

    def thread(self, address: str) -> Thread | None:
        """Return the agent's conversation thread in the outcome of this step; None without one."""


class At(NamedTuple):
    """An iteration of a turn."""

    turn: str
    iteration: int

    @property
    def block(self) -> str:
        """Return the address of this loop iteration, such as `outer~1[2]`."""
        return f"{self.turn}[{self.iteration}]"


class Position(NamedTuple):
    """The turns around a point, outermost first, and the last node in them that counts as done."""

    around: tuple[At, ...]
    #: None if no node of that iteration counts as done.
    node: str | None

    @property
    def block(self) -> str:
        """Return the address of the innermost loop iteration around the position, '' for none."""
        return self.around[-1].block if self.around else ""


def home(known: Known, block: str, name: str) -> str:
    """Returns the address of the loop iteration with a node's record, maybe kept by a resume."""
    origins: dict[str, Origin] = {}
    turn = block.rpartition("[")[0]
    while turn and (record := known.turn(turn)) and record.origin:
        origins[turn], turn = record.origin, record.origin.run
    return home_of(block, name, origins)


def newest(known: Known, node: Node, block: str) -> str:
    """Returns the address of a node's newest run in the loop iteration `block` ('': no loop)."""
    place = within(home(known, block, node.id), node.id)
    run = known.run(place)
    if isinstance(node, Loop) or node.for_each is not None or run > 1:
        return f"{place}~{run}"
    return place


def refuse(said: str, hint: str) -> NoReturn:
    """Raise PositionRefused with a hint, for a resume point that cannot be used."""
    raise PositionRefused(FIELD, said, hint)


def position_of(program: Program, said: str, known: Known) -> Position:
    """Resolves the name of a resume point to the position of the last node that the resume keeps.

    Raises PositionRefused if the name is unknown, ambiguous, or of an unfinished iteration.
    """
    found = list(_Walk(known, said).positions(program.body, (), _segments(program, said)))
    newest_one, *older = found
    if not older or _is_done_at(program, known, newest_one):
        return newest_one
    done = [point for point in older if _is_done_at(program, known, point)]
    stands = _state_at(program, known, newest_one)
    if stands is not None:
        ways = ", ".join(address_of(program, known, point) for point in done) or "an earlier step"
        refuse(said, f"in the newest iteration {stands}; name its address where it is done: {ways}")
    return next(iter(done), newest_one)


def newest_position(program: Program, said: str, known: Known) -> Position:
    """Resolves the name of a node, done or not, to its position in the newest iterations.

    A step of a flow that was made into several nodes is the first of them. Raises PositionRefused
    if the name is unknown or ambiguous.
    """
    segments = _segments(program, said, first=True)
    return next(_Walk(known, said).positions(program.body, (), segments))


def nodes_of_step(program: Program, point: Position) -> tuple[Node, ...]:
    """Returns all nodes compiled from the same flow or graph step as the node at a position."""
    node = _node_at(program, point)
    maker = items_maker(program, node)
    if node.origin is None:
        return (node,) if maker is None else (maker, node)
    loop = program.node(path_of(point.block)) if point.around else None
    body = loop.body if isinstance(loop, Loop) else program.body
    return tuple(n for n in body if n.origin is not None and n.origin.path == node.origin.path)


def address_of(program: Program, known: Known, point: Position) -> str:
    """Returns the address of the newest run of the node at a position."""
    return newest(known, _node_at(program, point), point.block)


def _node_at(program: Program, point: Position) -> Node:
    return program.node(within(path_of(point.block), str(point.node)))


def _state_at(program: Program, known: Known, point: Position) -> str | None:
    """Describes the state of a node that has started; None if it has not."""
    node, address = _node_at(program, point), address_of(program, known, point)
    record: TurnRecord | StepRecord | None = known.turn(address)
    if record is None and isinstance(node, Step):
        record = known.step(address)
    if record is None or record.state == "ready":
        return None
    return f"{address} is {record.state}"


def _is_done_at(program: Program, known: Known, point: Position) -> bool:
    return is_done(known, _node_at(program, point), point.block)


def is_done(known: Known, node: Node, block: str) -> bool:
    """Whether a node's newest run ended in a way that lets its successors start."""
    address = newest(known, node, block)
    turn: TurnRecord | None = None
    if isinstance(node, Loop) or node.for_each is not None:
        turn = known.turn(address)
    if turn is not None:
        return turn_is_done(node, turn)
    step: StepRecord | None = None if isinstance(node, Loop) else known.step(address)
    return step is not None and step_is_done(node, step)


def _step_of_graph(program: Program, said: str) -> str | None:
    """The node of a graph's step by its name, which may be any text, or by its position."""
    own = graph_steps(program)
    for node in own:
        if node.label == said:
            return node.id
    if not own or not said.isdecimal():
        return None
    if int(said) >= len(own):
        refuse(said, f"there is no {said} here, counted from 0 to {len(own) - 1}")
    return own[int(said)].id


def _segments(program: Program, said: str, *, first: bool = False) -> list[str]:
    """Splits a name into segments; of several nodes of a flow's step it names the last one."""
    step = _step_of_graph(program, said)
    if step is not None:
        return [step]
    pick = start_of if first else end_of
    if _BY_NUMBER.match(said):
        numbers = re.split(r"[./]", said)
        return _segments_in_file(program, said, numbers, pick) if is_flow(program) else numbers
    if program.has(re.split(r"[~\[/]", said)[0]):
        return said.split("/")
    found = _labels(program).get(said, [])
    origins = {origin.path for path in found if (origin := program.node(path).origin) is not None}
    if len(origins) == 1:  # a step of a flow may have been made into several nodes
        found = [pick(program, origins.pop())]
    if len(found) == 1:
        return found[0].split("/")
    if found:
        refuse(said, f"several nodes have this name: {', '.join(found)}; name one of these")
    head = re.split(r"[~\[/]", said)[0]
    if head != said and any(node.label == head for node in program.body):
        return said.split("/")
    refuse(said, f"the program has no such node; {_WAYS}; {_list_labels(program)}")


def is_name_of(program: Program, said: str, path: str) -> bool:
    """Whether this name means the node at a path, and no other one."""
    try:
        return {*map(tuple, (_segments(program, said, first=one) for one in (True, False)))} == {
            tuple(path.split("/"))
        }
    except PositionRefused:
        return False


def _segments_in_file(
    program: Program, said: str, numbers: list[str], pick: Callable[[Program, str], str]
) -> list[str]:
    """Converts positions in the flow's file to the segments of an address."""
    found = steps_at(program, numbers)
    if not found:
        where = "the flow's file has no step there, counted from 0"
        refuse(said, f"{where}; {_WAYS}; {_list_labels(program)}")
    if len(found) > 1:
        refuse(said, f"several steps match: {', '.join(found)}; name a label or an address")
    named = with_turns(program, pick(program, found[0]), numbers)
    if named is None:
        refuse(said, "only loops have iterations; name the iteration at the loop's step")
    return named


def _list_labels(program: Program) -> str:
    """A text that lists the labels of the program."""
    names = list(_labels(program))
    return f"there are: {list_first(names, _NAMED)}"


def _labels(program: Program) -> dict[str, list[str]]:
    """Node paths by label, or by id for nodes without a label."""
    found: dict[str, list[str]] = {}
    for path, node in program.walk():
        found.setdefault(node.label or node.id, []).append(path)
    return found


class _Walk:
    """Resolves a point's segments from the outermost block inwards."""

    def __init__(self, known: Known, said: str) -> None:
        self._known = known
        self._said = said

    def positions(
        self, body: tuple[Node, ...], around: tuple[At, ...], segments: list[str]
    ) -> Iterator[Position]:
        """Yields the matching points, the most likely first."""
        node, run, iteration = self._parse(body, segments[0])
        place = within(home(self._known, around[-1].block, node.id) if around else "", node.id)
        if len(segments) == 1:
            yield self._last(node, around, place, run, iteration)
            return
        if not isinstance(node, Loop):
            refuse(self._said, f"{segments[0]!r} is a step; only loops contain nodes")
        turn = f"{place}~{run or self._known.run(place)}"
        if turn not in self._lineage_of(place):
            again = f"{node.id!r} has run again since {turn!r}, or is about to"
            refuse(self._said, f"{again}; name a point that still counts as done")
        for at in self._iterations(turn, iteration):
            yield from self.positions(node.body, (*around, self._at(turn, at)), segments[1:])

    def _lineage_of(self, place: str) -> Iterator[str]:
        """Yields the newest run of a loop, and the older runs that it continues."""
        turn: str | None = f"{place}~{self._known.run(place)}"
        while turn is not None:
            yield turn
            record = self._known.turn(turn)
            turn = record.origin.run if record is not None and record.origin else None

    def _last(
        self, node: Node, around: tuple[At, ...], place: str, run: int | None, iteration: int | None
    ) -> Position:
        if iteration is not None:
            refuse(self._said, f"{node.id}[{iteration}] is an iteration; name the last node of it")
        now = self._known.run(place)
        if run is not None and run != now:
            refuse(self._said, f"{node.id!r} has run again since; name ~{now}")
        return Position(around, node.id)

    def _iterations(self, turn: str, iteration: int | None) -> tuple[int, ...]:
        """The iterations to search: the named one, or the newest and the one before it."""
        record = self._known.turn(turn)
        if record is None or record.iteration == 0:
            refuse(self._said, f"loop {turn!r} was never entered; name a point before it")
        last = record.iteration
        if iteration is None:
            return (last, last - 1) if last > 1 else (last,)
        if not 1 <= iteration <= last:
            had = f"has had iterations 1 to {last}, counted from 1"
            refuse(self._said, f"loop {turn!r} {had}, and no [{iteration}]")
        return (iteration,)

    def _at(self, turn: str, iteration: int) -> At:
        """The run of the iteration: the turn itself, or an older run that it continues."""
        record = self._known.turn(turn)
        while record is not None and record.origin and iteration < record.origin.opened:
            turn = record.origin.run
            record = self._known.turn(turn)
        return At(turn, iteration)

    def _parse(self, body: tuple[Node, ...], segment: str) -> tuple[Node, int | None, int | None]:
        if "#" in segment:
            refuse(
                self._said, "a session cannot resume from an item of a for_each; name the for_each"
            )
        match = _SEGMENT.match(segment)
        if match is None:
            refuse(self._said, f"{segment!r} is not part of an address; {_WAYS}")
        run, turn = match["run"], match["turn"]
        node = self._node(body, match["name"])
        return node, int(run) if run else None, int(turn) if turn else None

    def _node(self, body: tuple[Node, ...], name: str) -> Node:
        if name.isdecimal():
            if int(name) >= len(body):
                last = len(body) - 1
                refuse(self._said, f"there is no {name} here, counted from 0 to {last}")
            return body[int(name)]
        for node in body:
            if node.id == name:
                return node
        called = [node for node in body if node.label == name]
        if called and len({node.origin.path if node.origin else node.id for node in called}) == 1:
            return called[-1]  # a step of a flow may have been made into several nodes
        names = ", ".join(node.id for node in body)
        refuse(self._said, f"there is no {name!r} here; there are: {names}")


class Item(NamedTuple):
    """One item of a for_each: the address of its newest run, and its number from 1."""

    run: str
    number: int

    @property
    def address(self) -> str:
        """Return the address of the item's step."""
        return f"{self.run}#{self.number}"


def item_of(program: Program, said: str, known: Known) -> tuple[str, Item | None]:
    """Splits the name of an item, such as `fetch#2`: returns its for_each's name, and the item.

    Returns the name and None if it names no item. Raises PositionRefused for an item that the
    newest run of the for_each does not have, and for one of a step without for_each.
    """
    parts = _ITEM.match(said)
    if parts is None or any(node.label == said for _, node in program.walk()):
        return said, None
    name, number = parts["step"], int(parts["item"])
    point = newest_position(program, name, known)
    run = address_of(program, known, point)
    node = program.node(path_of(run))
    if not isinstance(node, Step) or node.for_each is None:
        raise PositionRefused(FIELD, said, f"{name!r} is no for_each; name the step alone")
    turn = known.turn(run)
    width = turn.width if turn is not None else 0
    if not 1 <= number <= width:
        have = f"its items are {name}#1 to {name}#{width}" if width else "it has no items yet"
        raise PositionRefused(FIELD, said, have)
    return run, Item(run, number)
