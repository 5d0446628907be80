"""The calls that read and change plans, and report about their tasks (pure)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from leadhand.client.calls import Call
from leadhand.client.paths import session_path
from leadhand.errors import local_error
from leadhand.models.etags import plan_etag
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlanEdit,
    PlanOperation,
    Proposal,
    RetryTask,
    TaskReport,
)
from leadhand.models.problems import Kind
from leadhand.models.validation_messages import first_error
from leadhand.models.views import PlanView, TaskView

#: Operations as models, or as the fields of one.
Operations = Iterable[PlanOperation | Mapping[str, Any]]

_JSON: TypeAdapter[Any] = TypeAdapter(Any)


class Change(NamedTuple):
    """A call that changes a plan, with how the plan shows that it was executed."""

    call: Call
    session: str
    is_done: Callable[[PlanView], bool]


def reading(session: str) -> Call:
    """Builds the request that reads the plan of a session."""
    return Call("GET", session_path(session, "plan"))


def task_list(session: str) -> Call:
    """Builds the request that lists the tasks of a session's plan."""
    return Call("GET", session_path(session, "plan/tasks"))


def task(session: str, task_id: str) -> Call:
    """Builds the request for a task of a plan. Raises TaskUnknown for an empty id."""
    if not task_id:
        raise local_error(Kind.TASK_UNKNOWN, "the id of the task is empty", hint="give its id")
    return Call("GET", session_path(session, f"plan/tasks/{quote(task_id, safe='')}"))


def own_task(session: str) -> Call:
    """Builds the request for the task that a child session carries out."""
    return Call("GET", session_path(session, "task"))


def editing(session: str, operations: Operations, seen: PlanView | int | None) -> Change:
    """Builds the request that edits a plan's tasks, if the plan is unchanged since `seen`.

    Raises RequestInvalid for faulty operations.
    """
    try:
        edit = PlanEdit.model_validate({"operations": tuple(operations)})
    except ValidationError as error:
        raise local_error(Kind.INVALID, first_error(error)) from None
    content = _JSON.dump_json({"operations": [fields_of(one) for one in edit.operations]})
    path, headers = session_path(session, "plan"), _if_match(seen)
    call = Call("PATCH", path, headers=headers, content=content)
    return Change(call, session, lambda plan: shows(plan, edit))


def _if_match(seen: PlanView | int | None) -> dict[str, str]:
    """The header by which a change is refused if the plan is not the one that was read."""
    version = seen.version if isinstance(seen, PlanView) else seen
    return {} if version is None else {"If-Match": plan_etag(version)}


def approval(session: str, seen: PlanView | int | None = None) -> Change:
    """Builds the request that approves the draft of a plan, if unchanged since `seen`."""
    path, headers = session_path(session, "plan/approve"), _if_match(seen)
    call = Call("POST", path, headers=headers, content=b"{}")
    return Change(call, session, lambda plan: plan.state in ("executing", "ended"))


def change(session: str, text: str) -> Change:
    """Builds the request that asks a plan's team lead for another draft, according to a text."""
    content = _JSON.dump_json({"text": text})
    call = Call("POST", session_path(session, "plan/changes"), content=content)
    return Change(call, session, lambda plan: plan.state == "planning")


def decision(session: str, proposal: str, *, accept: bool) -> Change:
    """Builds the request that accepts or refuses a task that was proposed for a plan."""
    if not proposal:
        raise local_error(
            Kind.PLAN_REFUSED,
            "the id of the proposal is empty",
            hint=f"`leadhand plan proposals {session}` lists them",
        )
    path = session_path(session, f"plan/proposals/{quote(proposal, safe='')}")
    wanted = (proposal, "accepted" if accept else "refused")
    return Change(
        Call("POST", path, content=_JSON.dump_json({"accept": accept})),
        session,
        lambda plan: any((one.id, one.status) == wanted for one in plan.proposals),
    )


def report(
    session: str,
    status: str,
    pr_url: str | None,
    notes: str | None,
    proposals: Sequence[Proposal | Mapping[str, Any]],
) -> Call:
    """Builds the request that reports the status of a child session's task; safe to repeat.

    Raises RequestInvalid.
    """
    given = {"status": status, "pr_url": pr_url, "notes": notes, "proposals": tuple(proposals)}
    try:
        found = TaskReport.model_validate({name: one for name, one in given.items() if one})
    except ValidationError as error:
        raise local_error(Kind.INVALID, first_error(error)) from None
    content = _JSON.dump_json(found.model_dump(mode="json", exclude_unset=True))
    headers = {"Idempotency-Key": uuid.uuid4().hex}
    return Call("POST", session_path(session, "reports"), headers=headers, content=content)


def worktree_list(session: str) -> Call:
    """Builds the request that lists the work folders of a plan's tasks, or of a session."""
    return Call("GET", session_path(session, "worktrees"))


def cleaning(session: str, tasks: Sequence[str], *, force: bool) -> Call:
    """Builds the request that starts the removal of work folders of a plan's tasks; repeatable."""
    content = _JSON.dump_json({"tasks": list(tasks), "force": force})
    return Call("POST", session_path(session, "worktrees/clean"), content=content)


def merge_list(session: str) -> Call:
    """Builds the request that lists the merges of the tasks of a session's plan."""
    return Call("GET", session_path(session, "merges"))


def every_worktree(cursor: str | None) -> Call:
    """Builds the request that lists a page of the work folders of all sessions."""
    params: dict[str, str | int] = {} if cursor is None else {"cursor": cursor}
    return Call("GET", "/v1/worktrees", params=params)


def folder_audit(*, repair: bool) -> Call:
    """Builds the request that starts an audit of all work folders; it is safe to repeat."""
    return Call("POST", "/v1/worktrees/audit", content=_JSON.dump_json({"repair": repair}))


def plan_applying(session: str, branch: str | None) -> Call:
    """Builds the request that fast-forwards a branch to a plan's merged work; safe to repeat."""
    content = _JSON.dump_json({"branch": branch})
    return Call("POST", session_path(session, "plan/apply"), content=content)


def comparison(session: str, task: str | None, *, unmerged: bool) -> Call:
    """Builds the request that starts a diff of a plan, or of one task, against its base commit."""
    content = _JSON.dump_json({"task": task, "unmerged": unmerged})
    return Call("POST", session_path(session, "plan/diff"), content=content)


def applying(session: str, **body: Any) -> Call:
    """Builds the request that applies a session's work to the folder it was started in."""
    content = _JSON.dump_json(body)
    return Call("POST", session_path(session, "apply"), content=content)


def fields_of(operation: PlanOperation) -> dict[str, Any]:
    """Returns a plan edit as JSON data: its `op` and the fields that are set, even to null."""
    return {"op": operation.op, **operation.model_dump(mode="json", exclude_unset=True)}


def shows(plan: PlanView, edit: PlanEdit) -> bool:
    """Whether a plan already has the effect of an edit, so that an earlier try succeeded."""
    tasks = {one.id: one for one in plan.tasks}
    order = [one.id for one in plan.tasks]
    return all(_is_seen(one, tasks, order) for one in edit.operations)


def _is_seen(one: PlanOperation, tasks: Mapping[str, TaskView], order: Sequence[str]) -> bool:
    match one:
        case AddTask():
            found = tasks.get(one.task.id)
            return found is not None and _has(found, one.task.model_dump(exclude_unset=True))
        case ChangeTask():
            found = tasks.get(one.id)
            fields = one.model_dump(exclude_unset=True, exclude={"op", "id"})
            return found is not None and _has(found, fields)
        case DropTask():
            return one.id not in tasks
        case MoveTask():
            before = [None, *order][order.index(one.id)] if one.id in tasks else one.id
            return before == one.after
        case RetryTask():
            return one.id in tasks and tasks[one.id].status not in ("failed", "blocked")


def _has(found: TaskView, fields: Mapping[str, Any]) -> bool:
    shown = found.model_dump()
    return all(
        shown[name] == (list(value) if isinstance(value, tuple) else value)
        for name, value in fields.items()
        if name in shown
    )
