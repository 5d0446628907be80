"""Formats what a team lead was asked about a failed task, and what it proposed (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import JsonValue

from leadhand.models.text import plain
from leadhand.models.views import ProposalView, TaskView


def replan_lines(task: TaskView) -> Iterator[str]:
    """Formats what the team lead proposed after a task failed; nothing if it was not asked."""
    replan = task.replan
    if replan is None:
        return
    by = f" (session {replan.session})" if replan.session else ""
    if replan.state == "asked":
        yield f"the team lead is asked for another way{by}"
    elif replan.state == "proposed":
        yield f"the team lead proposed {replan.proposal}{by}"
    else:
        yield f"the team lead proposed nothing{by}: {plain(replan.why, most=400)}"


def edit_lines(proposal: ProposalView) -> Iterator[str]:
    """Formats the edits that a team lead proposed, one per line."""
    if proposal.about is not None:
        yield f"  the team lead, after task {proposal.about} failed:"
    yield from (f"  - {_operation(one)}" for one in proposal.operations)


def _operation(operation: Mapping[str, JsonValue]) -> str:
    """An operation on a plan in one line.

    >>> _operation({"op": "change", "id": "a", "dependencies": ["b"], "title": "A"})
    'change a: dependencies b; title A'
    """
    task = operation.get("task")
    if isinstance(task, dict):
        return f"add {task.get('id')}: {plain(str(task.get('title')))}"
    given = [(name, one) for name, one in operation.items() if name not in ("op", "id")]
    fields = [f"{name} {plain(_field(one))}" for name, one in given]
    return f"{operation.get('op')} {operation.get('id')}" + (
        f": {'; '.join(fields)}" if fields else ""
    )


def _field(value: JsonValue) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "the plan's" if value is None else str(value)
