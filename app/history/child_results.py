"""The result of a flow that is called as a tool."""

from __future__ import annotations

from pydantic import JsonValue

from app.domain.ids import SessionRef
from app.domain.program import Loop, Program
from app.history.flow_result import newest_text
from app.history.snapshot import Snapshot
from app.store.store import Store


def result_of_flow(store: Store, ref: SessionRef, program: Program) -> JsonValue:
    """Returns the result of a flow: the value or text of its last step that has one."""
    known = Snapshot(store, ref)
    for node in reversed(program.body):
        run = known.run(node.id)
        if isinstance(node, Loop):
            found: JsonValue = newest_text(program, f"{node.id}~{run}", known)
        else:
            outcome = known.outcome(f"{node.id}~{run}" if run > 1 else node.id)
            is_done = outcome.get("word") == "succeeded"
            found = (outcome.get("value") or outcome.get("text")) if is_done else None
        if found:
            return found
    return None
