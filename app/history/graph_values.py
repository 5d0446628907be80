"""The results of a graph's steps, as other steps refer to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.artifacts import ArtifactSource
from app.domain.ids import SessionRef
from app.domain.program import Action, Program, Step
from app.domain.records import TurnRecord
from app.history.artifact_values import load_value
from app.store.store import Store
from leadhand.graphs.references import Held

#: Steps whose result is a text, unless it is a value.
_SPEAKING = (Action.AGENT, Action.HUMAN)
#: Characters of an error in a result.
_ERROR = 2_000


class StepValue(NamedTuple):
    """The result of a step: a value, that of a failure, or none because it was skipped."""

    held: Held
    #: Why it was skipped; None if it was not.
    skipped: str | None = None
    #: Whether it succeeded; one answer for each item of a for_each.
    succeeded: tuple[bool, ...] = ()


NOT_RUN = StepValue(Held(missing="the step has not run"))


class Place(NamedTuple):
    """Where the outcomes of a step are."""

    address: str
    #: Of a for_each: the record of its newest run.
    turn: TurnRecord | None

    @property
    def addresses(self) -> list[str]:
        """Return the address of the step's outcome, or of those of all items of a for_each."""
        if self.turn is None:
            return [self.address]
        return [f"{self.address}#{item}" for item in range(1, self.turn.width + 1)]


def read_values(
    store: Store,
    ref: SessionRef,
    program: Program,
    nodes: Iterable[str],
    artifacts: ArtifactSource,
    *,
    waits: Iterable[str] = (),
) -> dict[str, StepValue]:
    """Reads, by name, the newest results of nodes of the outermost block; NOT_RUN for one without.

    The result of a for_each is the list of the results of its items, in order. Of the nodes in
    `waits` only how they ended matters: a value of theirs that is an artifact is not loaded.
    """
    wanted = dict.fromkeys(nodes)
    names = list(dict.fromkeys((*wanted, *waits)))
    if not names:
        return {}
    places = _places(store, ref, program, names)
    nodes = {name: name for name in places}
    found = values_at(store, ref, program, places, nodes, artifacts, wanted=wanted)
    return {name: found.get(name, NOT_RUN) for name in names}


def values_at(
    store: Store,
    ref: SessionRef,
    program: Program,
    places: Mapping[str, Place],
    nodes: Mapping[str, str],
    artifacts: ArtifactSource,
    *,
    wanted: Iterable[str] | None = None,
) -> dict[str, StepValue]:
    """Reads the results of steps by name, and loads those that are stored as artifacts.

    `places` says where the outcomes are, and `nodes` has the path of each node in the program.
    Values that are artifacts are loaded for the places in `wanted`, by default for all.
    """
    addresses = [address for place in places.values() for address in place.addresses]
    found = store.values(ref, "out", addresses) if addresses else {}
    outcomes = {address: json.loads(text) for address, text in found.items()}
    for name in places if wanted is None else wanted:
        for address in places[name].addresses if name in places else ():
            if address in outcomes:
                outcomes[address]["value"] = load_value(outcomes[address], ref, artifacts)
    return {
        name: _value(place, outcomes, _action(program, nodes[name]))
        for name, place in places.items()
    }


def _places(store: Store, ref: SessionRef, program: Program, names: list[str]) -> dict[str, Place]:
    runs = {name: int(run) for name, run in store.values(ref, "runs", names).items()}
    each = {name: f"{name}~{runs.get(name, 1)}" for name in names if _fans_out(program, name)}
    turns = store.turns(ref, list(each.values())) if each else {}
    places = {name: Place(at, turns[at]) for name, at in each.items() if at in turns}
    for name in names:
        if name not in each:
            run = runs.get(name, 1)
            places[name] = Place(f"{name}~{run}" if run > 1 else name, None)
    return places


def _action(program: Program, name: str) -> Action | None:
    node = program.node(name)
    return node.action if isinstance(node, Step) else None


def _fans_out(program: Program, name: str) -> bool:
    node = program.node(name)
    return isinstance(node, Step) and node.for_each is not None


def _value(
    place: Place, outcomes: Mapping[str, Mapping[str, JsonValue]], action: Action | None
) -> StepValue:
    if place.turn is None:
        outcome = outcomes.get(place.address)
        return NOT_RUN if outcome is None else _of_outcome(outcome, action)
    if place.turn.verdict == "skipped":
        return _skipped("its condition was not met")
    items = [outcomes.get(address) for address in place.addresses]
    values = [None if one is None else _of_outcome(one, action).held.value for one in items]
    succeeded = tuple(one is not None and one.get("word") == "succeeded" for one in items)
    return StepValue(Held(values), succeeded=succeeded)


def _of_outcome(outcome: Mapping[str, JsonValue], action: Action | None) -> StepValue:
    match outcome.get("word"):
        case "succeeded":
            return StepValue(Held(_result(outcome, action)), succeeded=(True,))
        case "skipped":
            return _skipped(_reason(outcome) or "its condition was not met")
        case _:
            error = _reason(outcome) or "it failed"
            return StepValue(Held({"error": error}, failed=True), succeeded=(False,))


def _result(outcome: Mapping[str, JsonValue], action: Action | None) -> JsonValue:
    """What a step returned: an agent its text, a child session its result."""
    value = outcome.get("value")
    if action in _SPEAKING and value is None:
        return outcome.get("text")
    if action is Action.CHILD and isinstance(value, dict):
        return value.get("result")
    return value


def _skipped(why: str) -> StepValue:
    return StepValue(Held(missing=f"the step was skipped: {why}"), skipped=why)


def _reason(outcome: Mapping[str, JsonValue]) -> str:
    """The first line of the reason of an outcome."""
    reason = outcome.get("reason")
    text = str(reason.get("text") or "") if isinstance(reason, dict) else ""
    return (text.splitlines() or [""])[0][:_ERROR]
