"""Edits of plans as arguments of the transitions."""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import JsonValue

from app.domain.plans import record_of, spec_of
from leadhand.errors import PlanRefused
from leadhand.models.plans import (
    CLEARABLE,
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlanOperation,
    check_checkers,
)


def edit_arguments(
    session: str, operations: Iterable[PlanOperation], checkers: list[str]
) -> list[JsonValue]:
    """Converts edits of a plan to arguments of Lua. Raises PlanRefused for an unknown checker."""
    found: list[JsonValue] = []
    for number, operation in enumerate(operations, start=1):
        try:
            found.append(_argument(operation, checkers))
        except ValueError as error:
            raise PlanRefused(session, _subject(operation), str(error), number) from None
    return found


def _subject(operation: PlanOperation) -> str:
    return operation.task.id if isinstance(operation, AddTask) else operation.id


def _argument(operation: PlanOperation, names: list[str]) -> JsonValue:
    """An operation as an argument of the edit transition. Raises ValueError."""
    match operation:
        case AddTask():
            check_checkers(operation.task.id, operation.task.checkers, names)
            return {"op": "add", "task": record_of(operation.task)}
        case ChangeTask():
            check_checkers(operation.id, operation.checkers, names)
            return _change_argument(operation)
        case DropTask():
            return {"op": "drop", "id": operation.id}
        case MoveTask():
            after: dict[str, JsonValue] = {"after": operation.after} if operation.after else {}
            return {"op": "move", "id": operation.id, **after}
        case _:
            return {"op": "retry", "id": operation.id}


def _change_argument(operation: ChangeTask) -> JsonValue:
    given = operation.model_dump(mode="json", exclude_unset=True, exclude={"op", "id"})
    # A field that is set to null gets its default again.
    fields: dict[str, JsonValue] = {
        name: value for name, value in given.items() if value is not None or name in CLEARABLE
    }
    argument: dict[str, JsonValue] = {"op": "change", "id": operation.id}
    for name, field in (("notes", "notes"), ("priority", "priority"), ("dependencies", "deps")):
        if name in fields:
            argument[field] = fields.pop(name)
    spec = spec_of(fields)
    return argument | ({"spec": spec} if spec else {})
