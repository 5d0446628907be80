"""Reads the path that a session took: what became of each node in the iteration that is drawn.

Of each loop the last iteration that ran is drawn. If the loop did not run in the last iteration of
the loop around it, that is one of an earlier iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from app.domain.ids import SessionRef
from app.domain.program import Loop, Node, Program, Step
from app.domain.records import TurnRecord
from app.history.points import within
from app.queries.progress.mark_text import Before, end_of_turn, step_mark, turn_mark
from app.store.store import Store
from leadhand.drawing.shape import NESTED, Mark

#: Iterations of the loop around a loop, and earlier runs of a node, that are looked at: the newest.
_ITERATIONS, _RUNS = 100, 4


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
