"""The results of the steps of a graph that has ended."""

from __future__ import annotations

from pydantic import JsonValue

from app.domain.ids import SessionRef
from app.domain.program import Program, Step
from app.history.graph_values import NOT_RUN, read_values
from app.redaction import without_keys
from app.store.store import Store


def graph_results(store: Store, ref: SessionRef, program: Program) -> dict[str, JsonValue]:
    """The results by the names of the steps; without those that did not run or were skipped.

    That of a step that failed is `{"error": text}`.
    """
    steps = [
        node
        for node in program.body
        # Other nodes with a template make the list of a for_each.
        if isinstance(node, Step) and not node.quick
    ]
    values = read_values(store, ref, program, [step.id for step in steps])
    return {
        without_keys(step.label or step.id): values[step.id].held.value
        for step in steps
        if values[step.id] is not NOT_RUN and values[step.id].skipped is None
    }
