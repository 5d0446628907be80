"""The result of a flow that is called as a tool."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import JsonValue

from app.domain.artifacts import RESULT, Artifact, value_artifact
from app.domain.ids import SessionRef
from app.domain.program import Loop, Program
from app.history.flow_result import newest_text
from app.history.snapshot import Snapshot
from app.store.store import Store

_JSON = "application/json"


class FlowResult(NamedTuple):
    """The result of a flow."""

    value: JsonValue = None
    #: What has the value, if it is too long for an outcome; `value` then is its marker.
    artifact: Artifact | None = None


def result_of_flow(store: Store, ref: SessionRef, program: Program) -> FlowResult:
    """Returns the result of a flow: the value or text of its last step that has one.

    A long value stays where it is: the caller's outcome refers to the same artifact.
    """
    known = Snapshot(store, ref)
    for node in reversed(program.body):
        run = known.run(node.id)
        if isinstance(node, Loop):
            found: JsonValue = newest_text(program, f"{node.id}~{run}", known)
        else:
            outcome = known.outcome(f"{node.id}~{run}" if run > 1 else node.id)
            is_done = outcome.get("word") == "succeeded"
            found = (outcome.get("value") or outcome.get("text")) if is_done else None
            stored = value_artifact(outcome) if is_done else None
            if stored is not None:
                digest, size = stored
                return FlowResult(
                    found, Artifact(name=RESULT, digest=digest, size=size, media_type=_JSON)
                )
        if found:
            return FlowResult(found)
    return FlowResult()
