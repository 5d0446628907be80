"""Resolves the references of a flow's step to parts of results, and to its own item and index."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue

from app.domain.addresses import path_of
from app.domain.artifacts import ArtifactSource
from app.domain.ids import SessionRef
from app.domain.program import Loop, Program
from app.domain.records import Grant
from app.domain.references import FlowValue, Reference, as_path, names_of
from app.errors import ValueMissing
from app.history.flow_result import newest_text
from app.history.graph_values import NOT_RUN, Place, StepValue, values_at
from app.history.reference_places import has_turns, may_run_again, newest_run, places_of
from app.history.snapshot import Snapshot
from app.store.store import Store
from leadhand.graphs.references import (
    FILLED_CHARACTERS,
    Held,
    ReferenceFault,
    as_text,
    is_true,
    parse_at,
    target_of,
    value_at,
)

_TOO_LONG = f"all references of a step may have {FILLED_CHARACTERS:,} characters together"


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
        labels = (value.label,) if value.label else ()
        written, _ = parse_at(value.text, 0)
        target = target_of(written, labels)
        held = self._held(reference, target.kind)
        if target.keys:
            held = held._replace(value=_parsed(held.value))
        try:
            found = value_at(written, target, held)
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
