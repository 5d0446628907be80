"""What changes a plan, as arguments of the transitions: edits, and the ends of child sessions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from pydantic import JsonValue, TypeAdapter, ValidationError

from app.compiler.plan import REPLAN_STEP, document_of
from app.compiler.workflow import check_names
from app.context import Context
from app.core.addresses import SessionRef
from app.core.folders import WORKSPACE, Survey
from app.core.states import PARENT_DID, SessionStatus
from app.plans.tasks import MERGE, REPLAN, TaskLink, parse_link, parse_plan, record_of, spec_of
from app.store.store import Store
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

#: The statuses of a child session that change its task.
_FACTS = frozenset(
    {
        SessionStatus.COMPLETED,
        SessionStatus.FAILED,
        SessionStatus.EXITED,
        SessionStatus.ABORTED,
        SessionStatus.STOPPED,
        SessionStatus.ACTIVE,
        "deleted",
    }
)
_OPERATIONS = TypeAdapter(tuple[PlanOperation, ...])
#: Characters of a reason that are kept.
_LONGEST = 2_000


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


def apply_fact(
    engine: Context, child: SessionRef, fields: Mapping[str, str], parent: Mapping[str, str]
) -> None:
    """Update a plan because a child session ended, stopped or resumed. Raises SessionUnknown.

    A child that stopped with its parent resumes with it, and changes nothing.
    """
    status = fields.get("status", "deleted")
    reason = json.loads(fields.get("reason") or "null")
    stops = status == SessionStatus.STOPPED
    if status not in _FACTS or (stops and (reason or {}).get("text") == PARENT_DID):
        return
    ref = SessionRef(parent["session"], child.root)
    link = parse_link(parent["task"])
    arguments: dict[str, JsonValue] = {
        "task": link.task,
        "run": link.run,
        "child": child.id,
        "status": status,
        "reason": reason,
        "address": parent["address"],
        "merge": link.kind == MERGE or None,
        **_replan_arguments(engine, ref, child, link, status),
    }
    engine.transitions.apply("plan_fact", ref, arguments)


def is_unapplied(engine: Context, child: SessionRef, parent: Mapping[str, str]) -> bool:
    """Whether a plan still has a task at work though its child session has ended."""
    plan = parse_plan(engine.store.plan(SessionRef(parent["session"], child.root)))
    link = parse_link(parent["task"])
    task = next((one for one in plan.tasks if one.id == link.task), None) if plan else None
    return task is not None and task.is_at_work(link)


def _replan_arguments(
    engine: Context, ref: SessionRef, child: SessionRef, link: TaskLink, status: str
) -> dict[str, JsonValue]:
    """The arguments for the end of a session that asked the team lead."""
    if link.kind != REPLAN:
        return {}
    found: dict[str, JsonValue] = {"replan": True, "by": child.id}
    if status != SessionStatus.COMPLETED:
        return found
    document = document_of(engine.registry.program(engine.registry.facts(ref).program))
    outcome = _last_outcome(engine.store, child, REPLAN_STEP)
    return found | proposed_edit(outcome, ref.id, check_names(document.checkers))


def proposed_edit(outcome: str, session: str, checkers: list[str]) -> dict[str, JsonValue]:
    """Extracts a team lead's proposed plan edit from a step's outcome, or why there is none.

    The edit consists of Lua arguments. It is checked again, because an outcome is not signed. An
    edit has no commands.
    """
    value = json.loads(outcome).get("value")
    value = value if isinstance(value, dict) else {}
    why = str(value.get("why") or "")[:_LONGEST] or None
    try:
        operations = _OPERATIONS.validate_python(value.get("operations") or ())
        arguments = edit_arguments(session, operations, checkers)
    except (ValidationError, PlanRefused) as error:
        return {"why": f"its answer is no edit of the plan: {error}"[:_LONGEST]}
    if not arguments:
        return {"why": why or "it sees no other way"}
    dumped = [one.model_dump(mode="json", exclude_unset=True) for one in operations]
    return {"operations": arguments, "edit": json.dumps(dumped), "why": why}


def read_survey(store: Store, ref: SessionRef) -> Survey | None:
    """Returns what the last inspection found out about a plan's folder; None before the first."""
    value = json.loads(_last_outcome(store, ref, WORKSPACE)).get("value")
    return None if value is None else Survey.model_validate(value)


def _last_outcome(store: Store, ref: SessionRef, step: str) -> str:
    """The outcome (JSON) of the last run of an outermost step; an empty one before it ended."""
    run = int(store.values(ref, "runs", [step]).get(step, 1))
    address = step if run == 1 else f"{step}~{run}"
    return store.values(ref, "out", [address]).get(address, "{}")
