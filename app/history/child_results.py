"""The result of a flow, and of a loop or workflow that a step of a graph calls."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.artifacts import (
    INLINE_BYTES,
    RESULT,
    Artifact,
    marker,
    result_artifact,
    value_artifact,
)
from app.domain.ids import SessionRef
from app.domain.program import Action, Loop, Program, Step
from app.history.flow_result import newest_text
from app.history.graph_values import read_values
from app.history.snapshot import Snapshot
from app.store.store import Store

_JSON = "application/json"


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
