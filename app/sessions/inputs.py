"""Resolves the references in a step's inputs, with a fixed number of reads.

The cost depends on the step's own references, not on the length of the session's history.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import SessionRef, block_of, iteration_of, path_of, turn_of, within
from app.core.artifacts import ArtifactSource
from app.core.program import Loop, Program, Step
from app.core.records import Grant, TurnRecord
from app.core.references import (
    FAILED,
    NOT_RUN,
    SILENT,
    TEXT_KEYS,
    Reference,
    look_up,
    names_of,
    of_outcome,
    references_in,
    substitute,
)
from app.history.records import (
    Snapshot,
    home_of,
    may_run_again,
    newest_run,
    places_of,
    result_of_turn,
)
from app.history.values import FlowValues, load_value, newest_text
from app.sessions.templates import fill_template
from app.store.store import Store

#: Number of iterations in `${history}`, and maximum characters of feedback from each.
HISTORY = 3
HISTORY_FEEDBACK = 200

Outcomes = Mapping[str, Mapping[str, JsonValue]]


class _Seen(NamedTuple):
    """The records that were read for one step."""

    outcomes: Outcomes
    turns: Mapping[str, TurnRecord]
    names: Mapping[str, str]
    grant: Grant
    #: The newest agent's text in each loop.
    said: Mapping[str, str | None]


def resolve_inputs(
    store: Store,
    ref: SessionRef,
    program: Program,
    step: Step,
    grant: Grant,
    artifacts: ArtifactSource,
) -> dict[str, JsonValue]:
    """Returns the step's inputs with references replaced by values. Raises ReferenceUnresolved."""
    inputs, address = dict(step.inputs), grant.address
    if step.template is not None:
        item = _item(store, ref, step, address) if "#" in address else None
        filled = fill_template(
            store, ref, program, step.template, artifacts, address=address, item=item
        )
        return {**_plain(inputs), **filled}
    wanted = list(references_in(inputs))
    if step.when is not None:
        wanted += references_in(step.when)
        inputs["when"] = step.when
    if not wanted:
        return _plain(inputs)
    seen = _read_records(store, ref, program, grant, [one for one in wanted if one.value is None])
    seen = seen._replace(outcomes=_with_values(seen.outcomes, ref, artifacts))
    item = _item(store, ref, step, address) if "#" in address else None
    values = FlowValues(store, ref, program, grant, wanted, artifacts, item=item)

    def resolve(reference: Reference) -> JsonValue:
        if reference.value is not None:
            return values.resolve(reference, reference.value)
        if reference.word == "item":
            return look_up(item, reference.keys)
        return _value(program, reference, seen)

    found = substitute(inputs, resolve)
    assert isinstance(found, dict)
    return found


def _with_values(outcomes: Outcomes, ref: SessionRef, artifacts: ArtifactSource) -> Outcomes:
    """The outcomes with the values that are artifacts."""
    return {
        address: {**outcome, "value": load_value(outcome, ref, artifacts)}
        for address, outcome in outcomes.items()
    }


def _plain(inputs: dict[str, JsonValue]) -> dict[str, JsonValue]:
    found = substitute(inputs, lambda _: None)
    assert isinstance(found, dict)
    return found


def _read_records(
    store: Store, ref: SessionRef, program: Program, grant: Grant, wanted: Iterable[Reference]
) -> _Seen:
    """Reads newest runs, turns and outcomes, and the newest texts in loops."""
    wanted, address = list(wanted), grant.address
    names = places_of(program, grant, wanted)
    again = [place for place in names.values() if may_run_again(program, place)]
    runs = store.values(ref, "runs", again)
    for name, place in names.items():
        names[name] = newest_run(program, place, int(runs.get(place, 1)))
    loops = [a for a in names.values() if isinstance(program.node(path_of(a)), Loop)]
    asks_max = any(reference.word == "turn" and reference.keys == ("max",) for reference in wanted)
    own = turn_of(block_of(address.partition("#")[0])) if asks_max else ""
    turns = store.turns(ref, [*loops, own] if own else loops) if loops or own else {}
    addresses = [a for a in names.values() if a not in loops]
    addresses += [a for a in (_result(program, loop, turns) for loop in loops) if a]
    addresses += _earlier(grant, wanted)
    found = store.values(ref, "out", addresses)
    said = _loop_texts(store, ref, program, wanted, names, turns) if turns else {}
    return _Seen({a: json.loads(text) for a, text in found.items()}, turns, names, grant, said)


def _loop_texts(
    store: Store,
    ref: SessionRef,
    program: Program,
    wanted: Iterable[Reference],
    names: Mapping[str, str],
    turns: Mapping[str, TurnRecord],
) -> dict[str, str | None]:
    """The newest agent's text in each loop that is referenced with `:text!`."""
    asked = {name for one in wanted if one.keys == TEXT_KEYS for name in names_of(one)}
    known = Snapshot(store, ref)
    loops = (a for name, a in names.items() if name in asked and a in turns)
    return {loop: newest_text(program, loop, known) for loop in loops}


def _result(program: Program, loop: str, turns: Mapping[str, TurnRecord]) -> str | None:
    """The address of the outcome that holds the text of a loop's last iteration."""
    node = program.node(path_of(loop))
    if not isinstance(node, Loop) or loop not in turns:
        return None
    return result_of_turn(loop, node.result, turns[loop])


def _earlier(grant: Grant, wanted: Iterable[Reference]) -> list[str]:
    """The addresses of the outcomes that `previous` and `history` refer to."""
    now = iteration_of(grant.address)
    found = []
    for reference in wanted:
        if reference.word in ("previous", "history"):
            back = 1 if reference.word == "previous" else HISTORY
            first = max(1, now - back)
            found += [_before(grant, i, reference.keys[0]) for i in range(first, now)]
    return list(dict.fromkeys(found))


def _before(grant: Grant, iteration: int, name: str) -> str:
    """The address of a node's outcome in an earlier iteration of the same loop."""
    loop = turn_of(block_of(grant.address.partition("#")[0]))
    return within(home_of(f"{loop}[{iteration}]", name, grant.origins), name)


def _value(program: Program, reference: Reference, seen: _Seen) -> JsonValue:
    address = seen.grant.address
    match reference.word:
        case "previous":
            before = _before(seen.grant, iteration_of(address) - 1, reference.keys[0])
            return of_outcome(seen.outcomes.get(before), reference.keys[1:])
        case "history":
            return _history(reference.keys[0], seen)
        case "index":
            return int(address.rpartition("#")[2])
        case "turn":
            turn = seen.turns.get(turn_of(block_of(address.partition("#")[0])))
            known = {"iteration": iteration_of(address), "max": turn.max if turn else 0}
            return {**known, "same": turn.same if turn else 0}.get(reference.keys[0])
        case _:
            if reference.keys == TEXT_KEYS:
                return _text_of(program, names_of(reference), seen)
            return _of_node(program, reference.word, reference.keys, seen)


def _text_of(program: Program, names: tuple[str, ...], seen: _Seen) -> JsonValue:
    for name in reversed(names):
        found = seen.names[name]
        if found in seen.said and seen.turns[found].verdict != "skipped":
            return seen.said[found] or SILENT
        text = _of_node(program, name, ("text",), seen)
        if text is not None:
            failed = seen.outcomes.get(found, {}).get("word") == "failed"
            return text or (FAILED if failed else "")
    return NOT_RUN


def _of_node(program: Program, name: str, keys: tuple[str, ...], seen: _Seen) -> JsonValue:
    found = seen.names[name]
    if isinstance(program.node(path_of(found)), Loop):
        return look_up(_loop_value(program, found, seen), keys)
    return of_outcome(seen.outcomes.get(found), keys)


def _history(node: str, seen: _Seen) -> JsonValue:
    now = iteration_of(seen.grant.address)
    lines: list[JsonValue] = []
    for i in range(max(1, now - HISTORY), now):
        outcome = seen.outcomes.get(_before(seen.grant, i, node), {})
        feedback = str(outcome.get("text", ""))[:HISTORY_FEEDBACK]
        lines.append({"iteration": i, "verdict": outcome.get("verdict"), "feedback": feedback})
    return lines


def _loop_value(program: Program, loop: str, seen: _Seen) -> JsonValue:
    turn = seen.turns.get(loop)
    if turn is None:
        return {}
    if turn.verdict == "skipped":
        return None
    where = _result(program, loop, seen.turns)
    outcome = seen.outcomes.get(where, {}) if where else {}
    return {
        "verdict": turn.verdict,
        "iterations": turn.iteration,
        "text": None if outcome.get("word") == "skipped" else outcome.get("text", ""),
        "value": outcome.get("value"),
    }


def _item(store: Store, ref: SessionRef, step: Step, address: str) -> JsonValue:
    each, _, number = address.rpartition("#")
    if isinstance(step.for_each, tuple):
        return step.for_each[int(number) - 1]
    node = within(block_of(each), step.id)
    found = store.values(ref, "items", [f"{node}#{number}"])
    return next((json.loads(text) for text in found.values()), None)
