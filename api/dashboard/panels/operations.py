"""Describes operations on a plan in words, with all that they set (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from leadhand.models.views import ProposalView

_VERBS = {"add": "Add", "change": "Change", "drop": "Drop", "move": "Move", "retry": "Run again"}
#: What a proposed task sets; the rest of a view says how a task goes.
_PLANNED = {
    "title", "description", "dependencies", "agent", "model", "checkers", "rule", "file_scope",
    "priority", "max_iterations",
}  # fmt: skip


class Operation(NamedTuple):
    """An operation in words."""

    text: str
    #: The names and the whole values of the fields that it sets.
    fields: list[tuple[str, str]]


def proposed(proposal: ProposalView) -> list[Operation]:
    """Describes in words how a proposal would change the plan if a person accepts it."""
    if proposal.task is None:
        return described(proposal.operations)
    task = proposal.task.model_dump(mode="json", include=_PLANNED, exclude_defaults=True)
    return described([{"op": "add", "task": {"id": proposal.task.id, **task}}])


def described(operations: Sequence[Mapping[str, JsonValue]]) -> list[Operation]:
    """Describes edits of a plan in words, in their order.

    >>> described([{"op": "change", "id": "a", "agent": None, "dependencies": ["b", "c"]}])
    [Operation(text='Change task a', fields=[('agent', 'that of the plan'), ('after', 'b, c')])]
    >>> [one.text for one in described([{"op": "move", "id": "a", "after": None}])]
    ['Move task a to the front']
    """
    return [_described(one) for one in operations]


def _described(operation: Mapping[str, JsonValue]) -> Operation:
    op = str(operation.get("op"))
    task = operation.get("task")
    given = dict(task) if isinstance(task, Mapping) else dict(operation)
    text = f"{_VERBS.get(op, op)} task {given.pop('id', '')}"
    given.pop("op", None)
    if op == "move":
        after = given.pop("after", None)
        text += " to the front" if after is None else f" behind {after}"
    return Operation(text, [(_label(name), _value(value)) for name, value in given.items()])


def _label(name: str) -> str:
    return "after" if name == "dependencies" else name.replace("_", " ")


def _value(value: JsonValue) -> str:
    match value:
        case None:
            return "that of the plan"
        case str():
            return value or "none"
        case list():
            return ", ".join(str(one) for one in value) or "none"
        case _:
            return json.dumps(value)
