"""The values of results, as the steps of flows and graphs refer to them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import SessionRef, path_of
from app.core.artifacts import (
    INLINE_BYTES,
    RESULT,
    Artifact,
    ArtifactSource,
    marker,
    result_artifact,
    value_artifact,
)
from app.core.program import Action, Loop, Program, Step
from app.core.records import Grant, TurnRecord
from app.core.references import FlowValue, Reference, as_path, names_of
from app.errors import ValueMissing
from app.history.points import At, is_name_of, newest
from app.history.records import Snapshot, has_turns, may_run_again, newest_run, places_of
from app.store.store import Store
from leadhand.graphs.values import FILLED_CHARACTERS, Held, as_text, is_true, value_at
from leadhand.models.references import ReferenceFault, whole_in_flow

#: Steps whose result is a text, unless it is a value.
_SPEAKING = (Action.AGENT, Action.HUMAN)
#: Characters of an error in a result.
_ERROR = 2_000
_TOO_LONG = f"all references of a step may have {FILLED_CHARACTERS:,} characters together"
_JSON = "application/json"


def newest_text(program: Program, run: str, known: Snapshot) -> str | None:
    """Returns an agent's newest text in a run of a loop, inner loops included; None without any.

    It may come from an earlier iteration: the last one may have ended before any agent answered.
    """
    return next(_texts(program, run, known), None)


def _texts(program: Program, run: str, known: Snapshot) -> Iterator[str]:
    """Yields all texts of agents, newest first."""
    loop, turn = program.node(path_of(run)), known.turn(run)
    if turn is None or not isinstance(loop, Loop):
        return
    for iteration in range(turn.iteration, 0, -1):
        block = At(run, iteration).block
        for node in reversed(loop.body):
            if isinstance(node, Loop):
                yield from _texts(program, newest(known, node, block), known)
            elif node.action is Action.AGENT:
                outcome = known.outcome(newest(known, node, block))
                text = outcome.get("text")
                if isinstance(text, str) and text and outcome.get("word") != "skipped":
                    yield text


def load_value(
    outcome: Mapping[str, JsonValue], ref: SessionRef, artifacts: ArtifactSource
) -> JsonValue:
    """Returns the value in a step's stored outcome, loaded from an artifact if it is kept in one.

    Raises ArtifactUnknown.
    """
    found = value_artifact(outcome)
    if found is not None:
        value: JsonValue = json.loads(artifacts.read(ref, *found))
        return value
    value, found = outcome.get("value"), result_artifact(outcome)
    if found is None or not isinstance(value, dict):
        return value
    return {**value, "result": json.loads(artifacts.read(ref, *found))}


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


class FlowValues:
    """The values that the references of one step name, read at once."""

    def __init__(
        self,
        store: Store,
        ref: SessionRef,
        program: Program,
        grant: Grant,
        wanted: Iterable[Reference],
        artifacts: ArtifactSource,
        *,
        item: JsonValue,
    ) -> None:
        self._address = grant.address
        self._item = item
        self._left = FILLED_CHARACTERS
        valued = [one for one in wanted if one.value is not None]
        places = places_of(program, grant, valued)
        self._values: Mapping[str, StepValue] = {}
        if places:
            self._values = _read(store, ref, program, places, artifacts)

    def resolve(self, reference: Reference, value: FlowValue) -> JsonValue:
        """Returns the value or condition result of a flow's reference. Raises ValueMissing."""
        written = whole_in_flow(value.text, (value.label,), has_item=True)
        assert written is not None
        held = self._held(reference, written.kind)
        if written.keys:
            held = held._replace(value=_parsed(held.value))
        try:
            found = value_at(written, written, held)
        except ReferenceFault as fault:
            raise ValueMissing(fault.text, self._address, fault.why) from None
        if value.condition:
            return is_true(found) is not (value.condition == "not")
        self._left -= len(as_text(found))
        if self._left < 0:
            raise ValueMissing(value.text, self._address, _TOO_LONG)
        return found

    def _held(self, reference: Reference, kind: str) -> Held:
        if kind == "item":
            return Held(self._item)
        if kind == "index":
            return Held(int(self._address.rpartition("#")[2]))
        found = [self._values[name] for name in names_of(reference)]
        ran = (one for one in reversed(found) if one is not NOT_RUN and one.skipped is None)
        return next(ran, found[-1]).held


def _parsed(value: JsonValue) -> JsonValue:
    """The value of a text that is JSON; any other value unchanged."""
    if not isinstance(value, str):
        return value
    try:
        parsed: JsonValue = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed


def _read(
    store: Store,
    ref: SessionRef,
    program: Program,
    named: Mapping[str, str],
    artifacts: ArtifactSource,
) -> dict[str, StepValue]:
    """Reads the newest results of these places; a loop's is the newest text of an agent in it."""
    again = [place for place in named.values() if may_run_again(program, place)]
    runs = store.values(ref, "runs", again) if again else {}
    at = {name: newest_run(program, p, int(runs.get(p, 1))) for name, p in named.items()}
    ids = [address for address in at.values() if has_turns(program, address)]
    turns = store.turns(ref, ids) if ids else {}
    loops = {n: a for n, a in at.items() if isinstance(program.node(path_of(a)), Loop)}
    places = {
        name: Place(address, turns.get(address))
        for name, address in at.items()
        if name not in loops and (address in turns or address not in ids)
    }
    nodes = {name: as_path(name) or name for name in places}
    values = values_at(store, ref, program, places, nodes, artifacts)
    for name, place in places.items():
        if place.turn is not None and values[name].skipped is not None:
            values[name] = values[name]._replace(held=Held([]))  # a list that was skipped is empty
    known = Snapshot(store, ref)
    for name, address in loops.items():
        text = newest_text(program, address, known) if address in turns else None
        values[name] = NOT_RUN if text is None else StepValue(Held(text), succeeded=(True,))
    return {name: values.get(name, NOT_RUN) for name in named}


class FlowResult(NamedTuple):
    """The result of a called session."""

    value: JsonValue = None
    #: What has the value, if it is too long for an outcome; `value` then is its marker.
    artifact: Artifact | None = None


def result_of_flow(store: Store, ref: SessionRef, program: Program) -> FlowResult:
    """Returns the result of a called session: the value or text of its last step that has one.

    A long value stays where it is: the caller's outcome refers to the same artifact.
    """
    known = Snapshot(store, ref)
    for node in reversed(program.body):
        if isinstance(node, Step) and node.action is Action.WORKSPACE:
            continue  # it makes and keeps the session's own folder
        run = known.run(node.id)
        if isinstance(node, Loop):
            found = FlowResult(newest_text(program, f"{node.id}~{run}", known))
        elif node.for_each is not None:
            found = FlowResult(_list_of(store, ref, program, node.id))
        else:
            outcome = known.outcome(f"{node.id}~{run}" if run > 1 else node.id)
            found = _result_of_step(node, outcome)
        if found.value or isinstance(found.value, list):
            return found
    return FlowResult()


def text_of_flow(store: Store, ref: SessionRef, program: Program) -> str:
    """Returns the text of a flow's last step that has one; decisions are no results."""
    known = Snapshot(store, ref)
    for node in reversed(program.body):
        run = known.run(node.id)
        if isinstance(node, Loop):
            text: JsonValue = newest_text(program, f"{node.id}~{run}", known)
        elif node.for_each is not None:
            found = _list_of(store, ref, program, node.id)
            text = json.dumps(found) if isinstance(found, list) else found
        elif node.action in (Action.WORKSPACE, Action.DECIDE):
            continue
        else:
            outcome = known.outcome(f"{node.id}~{run}" if run > 1 else node.id)
            text = outcome.get("text") if outcome.get("word") == "succeeded" else None
        if text:
            return str(text)
    return ""


def _result_of_step(step: Step, outcome: Mapping[str, JsonValue]) -> FlowResult:
    if outcome.get("word") != "succeeded":
        return FlowResult()
    value, stored = outcome.get("value"), value_artifact(outcome)
    if step.action is Action.CHILD and isinstance(value, dict):
        value, stored = value.get("result"), result_artifact(outcome)
    if stored is None:
        return FlowResult(value or outcome.get("text"))
    digest, size = stored
    return FlowResult(value, Artifact(name=RESULT, digest=digest, size=size, media_type=_JSON))


class _Markers:
    """Reads no artifacts: each is its marker."""

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """Return the marker of an artifact as JSON."""
        del ref  # a marker is that of any session
        return json.dumps(marker(digest, size)).encode()


def _list_of(store: Store, ref: SessionRef, program: Program, node: str) -> JsonValue:
    """The results of the items of a step, long ones as markers; their number if it is too long."""
    held = read_values(store, ref, program, [node], _Markers())[node].held
    if not isinstance(held.value, list):
        return None
    is_short = len(json.dumps(held.value)) <= INLINE_BYTES
    return held.value if is_short else f"{len(held.value)} results, too long together"


def written_name(program: Program, address: str) -> str:
    """Returns a step's name in its document; '' if that equals the address, or inside a loop.

    A step in a loop is named by its address, which says the iteration.
    """
    path = path_of(address)
    if not address or "/" in path or not program.has(path):
        return ""
    name = program.node(path).label or ""
    if name == address:
        return ""
    _, _, item = address.partition("#")
    return f"{name} {item}".strip() if name else ""


def name_in_commands(program: Program, address: str) -> str:
    """Returns how a command names a step: by its name or label if that is its own.

    Otherwise by its address, without the run if it is in no loop: a command means the newest.
    """
    path = path_of(address)
    if "/" in path or not program.has(path):
        return address
    label, (_, sign, item) = program.node(path).label, address.partition("#")
    name = label if label is not None and is_name_of(program, label, path) else path
    return f"{name}{sign}{item}"
