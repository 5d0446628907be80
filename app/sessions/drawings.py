"""Draws a session: its program, the path that it took, and what became of each node.

Of each loop the last iteration that ran is drawn. If the loop did not run in the last iteration of
the loop around it, that is one of an earlier iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from app.compiler.flow import compile_flow
from app.context import Context
from app.core.addresses import SessionRef, within
from app.core.program import Action, Loop, Node, Program, Step, needs_of, transitive_needs
from app.core.records import StepRecord, TurnRecord
from app.core.states import ENDED
from app.redaction import without_keys
from app.store.store import Store
from leadhand.drawing import NESTED, Block, Drawn, Mark, layout_of, to_svg, to_text
from leadhand.drawing import shape_of as arrange
from leadhand.errors import SessionUnknown
from leadhand.flows.documents import FlowDocument
from leadhand.models.text import plain, reason_text
from leadhand.models.verdicts import Reason

#: Nodes of a block whose branches are drawn side by side; each is compared with all others.
_MOST = 100
#: The most characters of a reason and of the label of the loop around, and groups of iterations.
_WHY, _AROUND, _GROUPS = 120, 24, 5
#: Equal words in a row that are listed one by one.
_LISTED = 3
NOT_REACHED = "not reached"
_STATES = {"accept": "succeeded", "skipped": "skipped", "cancelled": "cancelled"}
#: The states of steps whose reason is shown.
_WITH_REASON = ("failed", "skipped", "cancelled")
#: Iterations of the loop around a loop, and earlier runs of a node, that are looked at: the newest.
_ITERATIONS, _RUNS = 100, 4


def shape_of(program: Program, marks: Mapping[str, Mark]) -> Block:
    """Arranges a program's nodes in layers for a drawing; `marks` has their states by path."""
    return arrange(_drawn(program.body), marks)


def _drawn(block: tuple[Node, ...]) -> tuple[Drawn, ...]:
    needs = drawn_needs(block)
    return tuple(
        Drawn(
            node.id,
            node.label or node.id,
            needs[node.id],
            _drawn(node.body) if isinstance(node, Loop) else (),
        )
        for node in block
    )


def drawn_needs(block: tuple[Node, ...]) -> dict[str, tuple[str, ...]]:
    """Returns the edges to each node of a block as they are drawn: branches side by side.

    A program runs the branches of a decision one after the other and skips those that were not
    chosen. They are drawn beside each other, and what comes after them follows each of them, or the
    decision if it has no other branch.
    """
    needs, chosen = needs_of(block), _choices(block)
    if len(block) > _MOST or not any(chosen.values()):
        return needs
    before = transitive_needs(block)
    drawn: dict[str, tuple[str, ...]] = {}
    above: dict[str, frozenset[str]] = {}
    for name in sorted(needs, key=lambda one: len(before[one])):
        earlier = [one for one in needs if one in before[name] and not _conflict(chosen, one, name)]
        last = [one for one in earlier if not any(one in above[other] for other in earlier)]
        passed = _passed_by(chosen, name, last)
        drawn[name] = tuple(dict.fromkeys([*last, *passed]))
        above[name] = frozenset(earlier)
    return drawn


def _choices(block: tuple[Node, ...]) -> dict[str, dict[str, str]]:
    """The decisions that each node depends on, also through others, with the needed verdicts."""
    given = {node.id: node.given for node in block}
    found: dict[str, dict[str, str]] = {}
    for node in block:
        one, chosen = node.given, dict[str, str]()
        while one is not None:
            chosen[one.node] = one.verdict
            one = given[one.node]
        found[node.id] = chosen
    return found


def _conflict(chosen: Mapping[str, Mapping[str, str]], one: str, other: str) -> bool:
    """Whether two nodes are in different branches of a decision."""
    mine = chosen[one]
    return any(node in mine and mine[node] != verdict for node, verdict in chosen[other].items())


def _passed_by(
    chosen: Mapping[str, Mapping[str, str]], name: str, last: Sequence[str]
) -> list[str]:
    """The decisions without a branch for their other answer, which leads to this node at once."""
    left = [
        (node, verdict)
        for one in last
        for node, verdict in chosen[one].items()
        if node not in chosen[name]
    ]
    return [
        node
        for node, verdict in left
        if not any(chosen[one].get(node, verdict) != verdict for one in last)
    ]


class Before(NamedTuple):
    """What happened at a node before its newest run, and around it."""

    #: The number of the newest run, and the ends of some before it, by their numbers.
    run: int = 1
    runs: Sequence[tuple[int, str]] = ()
    #: Of a loop in a loop: how it ended in the iterations of that loop, by their numbers.
    around: str = ""
    iterations: Sequence[tuple[int, str]] = ()
    #: Of a loop whose newest run has no iteration: the earlier run, or the iteration of the loop
    #: around it, whose run is drawn.
    drawn_run: int = 0
    drawn_iteration: int = 0

    def lines(self, *, opened: int = 1) -> tuple[str, ...]:
        """Format each part as a short line."""
        parts = []
        if self.run > 1:
            parts.append(f"run {self.run}" + (f" from iteration {opened} on" if opened > 1 else ""))
        parts += [f"run {number}: {end}" for number, end in self.runs]
        if len(self.iterations) > 1:
            parts.append(f"{self._around()} {_grouped(self.iterations)}")
        if self.drawn_run:
            parts.append(f"shown is run {self.drawn_run}")
        elif self.drawn_iteration:
            parts.append(f"shown is that of {self._around()} {self.drawn_iteration}")
        return tuple(parts)

    def _around(self) -> str:
        return plain(without_keys(self.around), most=_AROUND)


def step_mark(
    step: Step, record: StepRecord | None, before: Before, *, is_over: bool = False
) -> Mark:
    """Returns what became of a step; `is_over` says that its block has ended."""
    earlier = before.lines()
    if record is None:
        return Mark(note=NOT_REACHED if is_over else "", before=earlier)
    notes = [f"attempt {record.attempt}"] if record.attempt > 1 else []
    if record.state == "succeeded":
        notes += _answer(step, record.verdict)
    is_refusal = record.verdict == "retry" and step.action is not Action.DECIDE
    state = "retry" if record.state == "succeeded" and is_refusal else record.state
    why = _why(record.reason) if state in _WITH_REASON else ""
    return Mark(state, ", ".join(notes), why, earlier)


def _answer(step: Step, verdict: str | None) -> list[str]:
    """What a decision or a break said."""
    if verdict is None or step.action not in (Action.DECIDE, Action.BREAK):
        return []
    if step.action is Action.DECIDE:
        return ["yes" if verdict == "accept" else "no"]
    return [f"ends the {step.ends}" if verdict == "accept" else "goes on"]


def turn_mark(
    node: Step | Loop, turn: TurnRecord | None, before: Before, *, is_over: bool = False
) -> Mark:
    """Returns what became of a loop or for_each, with the iterations of its newest run."""
    opened = turn.origin.opened if turn is not None and turn.origin is not None else 1
    earlier = before.lines(opened=opened)
    if turn is None:
        most = f"at most {node.max_iterations} times" if isinstance(node, Loop) else "for each item"
        return Mark(note=NOT_REACHED if is_over else most, before=earlier)
    state = _STATES.get(turn.verdict or "", "failed") if turn.state == "closed" else "running"
    if state == "skipped":
        return Mark(state, "", _why(turn.reason), earlier)
    why = _why(turn.reason) if state == "failed" and turn.verdict != "max_iterations" else ""
    if isinstance(node, Loop):
        return Mark(state, iterations_text(turn), why, earlier)
    return Mark(state, f"{turn.width} item" + ("" if turn.width == 1 else "s"), why, earlier)


def iterations_text(turn: TurnRecord) -> str:
    """Formats the iterations of a loop's run with their verdicts, in one short line.

    >>> iterations_text(TurnRecord(state="closed", iteration=4, max=5, verdict="accept"))
    'iterations 1-4 of 5: retry, retry, retry, accept'
    >>> iterations_text(TurnRecord(state="closed", iteration=99, max=99, verdict="max_iterations"))
    'iterations 1-99 of 99: 99 x retry, the limit'
    >>> iterations_text(TurnRecord(state="open", iteration=1, max=3))
    'iteration 1 of 3'
    """
    count, verdict = turn.iteration, turn.verdict
    if count == 0 or (count == 1 and verdict is None):
        return f"iteration {count} of {turn.max}"
    is_limit = verdict == "max_iterations"
    words = ["retry"] * (count - 1) + ["retry" if is_limit else verdict or "under way"]
    listed = []
    for word, same in groupby(words):
        number = len(list(same))
        listed += [word] * number if number <= _LISTED else [f"{number} x {word}"]
    head = "iteration 1" if count == 1 else f"iterations 1-{count}"
    return f"{head} of {turn.max}: {', '.join(listed)}" + (", the limit" if is_limit else "")


def end_of_turn(turn: TurnRecord | None) -> str:
    """Formats in few words how a run of a loop or for_each ended.

    >>> end_of_turn(TurnRecord(state="closed", iteration=2, verdict="accept"))
    'accept after 2'
    """
    if turn is None:
        return NOT_REACHED
    if turn.state != "closed":
        return "under way"
    end = turn.verdict or turn.state
    return f"{end} after {turn.iteration}" if turn.iteration else end


def _grouped(ends: Iterable[tuple[int, str]]) -> str:
    """Formats the ends of iterations; those that ended alike in a row are one group.

    >>> _grouped([(1, "accept after 2"), (2, "accept after 2"), (3, "skipped")])
    '1-2: accept after 2, 3: skipped'
    """
    groups = []
    for end, same in groupby(ends, key=lambda one: one[1]):
        numbers = [number for number, _ in same]
        span = f"{numbers[0]}-{numbers[-1]}" if len(numbers) > 1 else f"{numbers[0]}"
        groups.append(f"{span}: {end}")
    shown = groups[-_GROUPS:]
    return ", ".join(["\N{HORIZONTAL ELLIPSIS}", *shown] if len(groups) > _GROUPS else shown)


def _why(reason: Reason | None) -> str:
    # A credential that is cut in two would not be recognised any more.
    text = "" if reason is None else without_keys(reason_text(reason.model_dump()))
    return plain(text, most=_WHY)


class _Iteration(NamedTuple):
    """An iteration of a loop, or the program as a whole: where its nodes have their records."""

    block: str = ""
    #: The blocks of an older run with the nodes that a resume kept.
    kept: Mapping[str, str] = {}
    number: int = 0

    def place(self, name: str) -> str:
        """Return the address of a node without its run."""
        return within(self.kept.get(name, self.block), name)


class _Around(NamedTuple):
    """The block that is drawn: the iterations of a loop, the last of which is drawn."""

    path: str = ""
    label: str = ""
    iterations: Sequence[_Iteration] = (_Iteration(),)
    #: Whether nothing more runs in it.
    is_over: bool = False


class _Ran(NamedTuple):
    """A run of a loop with an iteration; its number or place if it is not the newest."""

    id: str
    turn: TurnRecord
    run: int = 0
    #: The iteration of the loop around it.
    iteration: int = 0


class TakenPath:
    """Reads the records of one session; the reads of a block do not grow with its nodes."""

    def __init__(self, store: Store, ref: SessionRef) -> None:
        self._store = store
        self._ref = ref

    def marks(self, program: Program, *, has_ended: bool) -> dict[str, Mark]:
        """Return what became of each node that is drawn, by its path."""
        return dict(self._block(program.body, _Around(is_over=has_ended), NESTED))

    def _block(
        self, nodes: tuple[Node, ...], around: _Around, deep: int
    ) -> Iterator[tuple[str, Mark]]:
        places = {node.id: around.iterations[-1].place(node.id) for node in nodes}
        runs = self._runs(places.values())
        listed = {node.id for node in nodes if isinstance(node, Loop) or node.for_each is not None}
        addresses = {
            (name, run): f"{place}~{run}" if name in listed or run > 1 else place
            for name, place in places.items()
            for run in range(max(1, runs[place] - _RUNS), runs[place] + 1)
        }
        turns = self._turns(a for (name, _), a in addresses.items() if name in listed)
        asked = [a for (name, _), a in addresses.items() if name not in listed]
        steps = self._store.steps(self._ref, asked) if asked else {}
        for node in nodes:
            run = runs[places[node.id]]
            known = {number: a for (name, number), a in addresses.items() if name == node.id}
            if node.id in listed:
                found = [(r, a, turns[a]) for r, a in known.items() if a in turns]
                yield from self._turn(node, run, found, around, deep)
                continue
            assert isinstance(node, Step)
            ends = [(r, steps[a].state) for r, a in known.items() if a in steps and r != run]
            mark = step_mark(node, steps.get(known[run]), Before(run, ends), is_over=around.is_over)
            yield around.path + node.id, mark

    def _turn(
        self,
        node: Node,
        run: int,
        found: Sequence[tuple[int, str, TurnRecord]],
        around: _Around,
        deep: int,
    ) -> Iterator[tuple[str, Mark]]:
        """What became of a loop or for_each, and of the nodes of its last iteration."""
        newest = next((turn for number, _, turn in found if number == run), None)
        ends = [(number, end_of_turn(turn)) for number, _, turn in found if number != run]
        history = self._history(node, around) if isinstance(node, Loop) else []
        ran = _last_ran(run, found, history)
        before = Before(
            run, ends, around.label, [(n, end_of_turn(turn)) for n, _, turn in history],
            *((ran.run, ran.iteration) if ran is not None else ()),
        )  # fmt: skip
        path = around.path + node.id
        yield path, turn_mark(node, newest, before, is_over=around.is_over)
        if isinstance(node, Loop) and ran is not None and deep > 0:
            is_over = around.is_over or ran.turn.state == "closed"
            iterations = self._iterations(ran.id, ran.turn)
            inside = _Around(f"{path}/", node.label or node.id, iterations, is_over)
            yield from self._block(node.body, inside, deep - 1)

    def _history(self, node: Loop, around: _Around) -> list[tuple[int, str, TurnRecord | None]]:
        """The newest run of a loop in each iteration of the loop around it, with its number."""
        if len(around.iterations) < 2:
            return []
        places = [(one.number, one.place(node.id)) for one in around.iterations]
        runs = self._runs(place for _, place in places)
        ids = {number: f"{place}~{runs[place]}" for number, place in places}
        turns = self._turns(ids.values())
        return [(number, id_, turns.get(id_)) for number, id_ in ids.items()]

    def _iterations(self, id_: str, turn: TurnRecord) -> list[_Iteration]:
        """The last iterations of a run, the first of which may belong to the run it continues."""
        found = list[_Iteration]()
        lowest = max(0, turn.iteration - _ITERATIONS)
        number, owner, record = turn.iteration, id_, turn
        while number > lowest:
            origin = record.origin
            if origin is not None and number < origin.opened:
                older = self._turns([origin.run]).get(origin.run)
                if older is None:
                    break
                owner, record = origin.run, older
                continue
            kept = origin.kept if origin is not None and number == origin.opened else {}
            found.append(_Iteration(f"{owner}[{number}]", kept, number))
            number -= 1
        return found[::-1]

    def _runs(self, places: Iterable[str]) -> dict[str, int]:
        asked = list(places)
        found = self._store.values(self._ref, "runs", asked)
        return {place: int(found.get(place, 1)) for place in asked}

    def _turns(self, ids: Iterable[str]) -> dict[str, TurnRecord]:
        asked = list(ids)
        return self._store.turns(self._ref, asked) if asked else {}


def _last_ran(
    run: int,
    found: Sequence[tuple[int, str, TurnRecord]],
    history: Sequence[tuple[int, str, TurnRecord | None]],
) -> _Ran | None:
    """The newest run with an iteration: of this place, else of an earlier iteration around it."""
    for number, id_, turn in reversed(found):
        if turn.iteration:
            return _Ran(id_, turn, run=0 if number == run else number)
    for number, id_, earlier in reversed(history):
        if earlier is not None and earlier.iteration:
            return _Ran(id_, earlier, iteration=number)
    return None


def draw_svg(engine: Context, session: str) -> str:
    """Returns an SVG drawing of a session's program, with the path that it took."""
    return without_keys(to_svg(layout_of(_shape(engine, session)), f"session {session}"))


def draw_text(engine: Context, session: str, width: int) -> str:
    """Returns a text drawing of a session's path, in lines of at most `width` characters."""
    return without_keys("\n".join(to_text(_shape(engine, session), width)) + "\n")


def draw_flow(document: FlowDocument) -> str:
    """Returns an SVG drawing of a flow's definition, without states. Raises InvalidDocument."""
    # The shape does not depend on the inputs that a run must give.
    inputs = {name: "[]" if text is None else text for name, text in document.inputs.items()}
    program = compile_flow(document.model_copy(update={"inputs": inputs}))
    return without_keys(to_svg(layout_of(shape_of(program, {})), f"flow {document.name}"))


def _shape(engine: Context, session: str) -> Block:
    ref = engine.registry.ref(session)
    found = engine.store.values(ref, "session", ["program", "status"])
    if "program" not in found:
        raise SessionUnknown(session)
    program = engine.registry.program(found["program"])
    has_ended = found.get("status", "") in ENDED
    return shape_of(program, TakenPath(engine.store, ref).marks(program, has_ended=has_ended))
