"""The records of one session, read lazily, and those that a run or a reference means."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from pydantic import JsonValue

from app.core.addresses import SessionRef, block_of, iteration_in, path_of, turn_of, within
from app.core.outcomes import Thread
from app.core.program import Loop, Program
from app.core.records import Grant, Origin, StepRecord, TurnRecord
from app.core.references import RESERVED, Reference, as_path, names_of
from app.errors import ReferenceUnresolved
from app.store.store import Store

Origins = Mapping[str, Origin]


class Snapshot:
    """Reads records on demand, each once. Callers check that the session has not changed since."""

    def __init__(self, store: Store, ref: SessionRef) -> None:
        self._store = store
        self._ref = ref
        self.run = cache(self._run)
        self.step = cache(self._step)
        self.turn = cache(self._turn)
        self.outcome = cache(self._outcome)
        self.thread = cache(self._thread)

    def steps(self, addresses: Sequence[str]) -> Mapping[str, StepRecord]:
        """Return the records of the steps at these addresses, without those that have none."""
        return self._store.steps(self._ref, addresses)

    def _run(self, place: str) -> int:
        return int(self._store.values(self._ref, "runs", [place]).get(place, 1))

    def _step(self, address: str) -> StepRecord | None:
        return self._store.steps(self._ref, [address]).get(address)

    def _turn(self, id_: str) -> TurnRecord | None:
        return self._store.turns(self._ref, [id_]).get(id_)

    def _outcome(self, address: str) -> Mapping[str, JsonValue]:
        kept = self._store.values(self._ref, "out", [address]).get(address)
        return json.loads(kept) if kept is not None else {}

    def _thread(self, address: str) -> Thread | None:
        thread = self._outcome(address).get("thread")
        return Thread.model_validate(thread) if thread else None


def home_of(block: str, name: str, origins: Origins) -> str:
    """Returns the address of the loop iteration with a node's record, maybe kept by a resume.

    >>> once = Origin(run="l~1", opened=3, kept={"do": "l~1[3]"})
    >>> [home_of(f"l~2[{i}]", "do", {"l~2": once}) for i in (2, 3, 4)]
    ['l~1[2]', 'l~1[3]', 'l~2[4]']
    >>> home_of("l~2[3]", "check", {"l~2": once})
    'l~2[3]'
    """
    turn, iteration = turn_of(block), iteration_in(block)
    while turn in origins:
        origin = origins[turn]
        if iteration == origin.opened and name in origin.kept:
            return origin.kept[name]
        if iteration >= origin.opened:
            break
        turn = origin.run
    return f"{turn}[{iteration}]" if iteration else turn


def result_of_turn(id_: str, result: str | None, turn: TurnRecord) -> str | None:
    """Returns the address of the step in a loop's last iteration with its result text, or None."""
    if result is None or not turn.iteration:
        return None
    origins = {id_: turn.origin} if turn.origin else {}
    return f"{home_of(f'{id_}[{turn.iteration}]', result, origins)}/{result}"


def has_turns(program: Program, place: str) -> bool:
    """Whether the node at an address is a loop or for_each, whose runs have iterations or items."""
    node = program.node(path_of(place))
    return isinstance(node, Loop) or node.for_each is not None


def may_run_again(program: Program, place: str) -> bool:
    """Whether a node can have several runs: a loop, a for_each, or an outermost node."""
    return "/" not in place or has_turns(program, place)


def places_of(program: Program, grant: Grant, wanted: Iterable[Reference]) -> dict[str, str]:
    """Maps the names of referenced nodes to their addresses, as the step with a grant sees them.

    Raises ReferenceUnresolved for a name that is not visible there.
    """
    places: dict[str, str] = {}
    for reference in wanted:
        if reference.word not in RESERVED:
            for name in names_of(reference):
                places[name] = _place(program, grant, name)
    return places


def _place(program: Program, grant: Grant, named: str) -> str:
    path = as_path(named)
    name = named if path is None else path.rpartition("/")[2]
    block = block_of(grant.address.partition("#")[0])
    while True:
        found = path_of(within(block, name))
        if found == path or (path is None and program.has(found)):
            return within(home_of(block, name, grant.origins), name)
        if not block:
            raise ReferenceUnresolved("${" + named + "}", grant.address)
        block = block_of(turn_of(block))


def newest_run(program: Program, place: str, run: int) -> str:
    """Appends a run number to a node's address, as `name~2`; a plain step's first run has none."""
    if has_turns(program, place) or run > 1:
        return f"{place}~{run}"
    return place
