"""The operations on plans: read, edit, approve, decide about proposals, and report about a task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from leadhand.contract.calls import Answer, Ask, Call, Noun, Op, Steps
from leadhand.contract.operation import (
    READS,
    ApiResponse,
    Body,
    BodyRight,
    NoBody,
    NoQuery,
    Operation,
    Scope,
    replies,
)
from leadhand.contract.requests import calls, idempotent, parsed, reads, request
from leadhand.errors import AnswerUnwanted, PlanChanged, PlanRefused, RequestInvalid
from leadhand.models.etags import plan_etag
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlanChange,
    PlanEdit,
    PlanOperation,
    Proposal,
    RetryTask,
    TaskReport,
)
from leadhand.models.validation_messages import first_error
from leadhand.models.views.plan import PlanView, ReportView, TaskView
from leadhand.models.views.view import Page

_PLAN = "/v1/sessions/{session}/plan"
_ETAG = ("ETag",)


SHOW = Operation[NoQuery](
    name="plans.one", method="GET", path=_PLAN,
    summary="Show the plan of a session",
    responses=(replies(PlanView, "The plan as it is now.", headers=_ETAG),
               ApiResponse(304, "The plan has not changed.", headers=_ETAG)),
    scope=Scope.READ,
    body_right=READS, headers=("If-None-Match",), refuses=(409,),
)  # fmt: skip


EDIT = Operation[PlanEdit](
    name="plans.edit", method="PATCH", path=_PLAN,
    summary="Change the tasks of a plan: all operations, or none",
    responses=(replies(PlanView, "The plan with the changes.", headers=_ETAG),),
    scope=Scope.CONTROL,
    body=PlanEdit, body_required=True, headers=("If-Match",), refuses=(409, 412),
)  # fmt: skip


APPROVE = Operation[NoBody](
    name="plans.approve", method="POST", path=f"{_PLAN}/approve",
    summary="Approve a plan's draft, so that its tasks start",
    responses=(replies(PlanView, "The approved plan.", 202, headers=_ETAG),),
    scope=Scope.CONTROL,
    body=NoBody, headers=("If-Match",), refuses=(409, 412),
)  # fmt: skip


CHANGE = Operation[PlanChange](
    name="plans.changes", method="POST", path=f"{_PLAN}/changes",
    summary="Have the team lead change its draft",
    responses=(replies(PlanView, "The plan; its next draft replaces it.", 202, headers=_ETAG),),
    scope=Scope.CONTROL,
    body=PlanChange, body_required=True, refuses=(409,),
)  # fmt: skip


TASKS = Operation[NoQuery](
    name="plans.tasks", method="GET", path=f"{_PLAN}/tasks",
    summary="List the tasks of a plan, in its order",
    responses=(replies(Page[TaskView], "All tasks."),),
    scope=Scope.READ,
    body_right=READS, refuses=(409,),
)  # fmt: skip


TASK = Operation[NoQuery](
    name="plans.task", method="GET", path=f"{_PLAN}/tasks/{{task}}",
    summary="Show a task of a plan",
    responses=(replies(TaskView, "The task as it is now."),),
    scope=Scope.READ,
    body_right=READS, refuses=(409,),
)  # fmt: skip


#: Operations as models, or as the fields of one.
Operations = Iterable[PlanOperation | Mapping[str, Any]]


class Decision(Body):
    """A decision about a proposal."""

    #: Whether the proposed task becomes one of the plan.
    accept: bool


DECIDE = Operation[Decision](
    name="plans.decide", method="POST", path=f"{_PLAN}/proposals/{{proposal}}",
    summary="Accept or refuse a task that a child session proposed",
    responses=(replies(PlanView, "The plan with the decision.", headers=_ETAG),),
    scope=Scope.CONTROL,
    body=Decision, body_required=True, headers=("If-Match",), refuses=(409, 412),
)  # fmt: skip


OWN_TASK = Operation[NoQuery](
    name="plans.own_task", method="GET", path="/v1/sessions/{session}/task",
    summary="Show the task that a child session carries out",
    responses=(replies(TaskView, "The task as its parent's plan has it."),),
    scope=Scope.READ,
    body_right=BodyRight("read", "own"), refuses=(409,),
)  # fmt: skip


REPORT = Operation[TaskReport](
    name="plans.report", method="POST", path="/v1/sessions/{session}/reports",
    summary="Report about the task that a child session carries out",
    responses=(replies(ReportView, "The task's status with the report."),),
    scope=Scope.CONTROL,
    body_right=BodyRight("report", "own"), body=TaskReport, body_required=True,
    headers=("Idempotency-Key",), refuses=(409,),
)  # fmt: skip


class Plans(Noun):
    """Reads and changes plans, and reports about their tasks."""

    @calls(SHOW)
    def plan(self, session: str) -> PlanView:
        """Get a session's plan with its tasks, state and proposals. Raises NoPlan without one."""

    @calls(TASKS)
    def plan_tasks(self, session: str) -> list[TaskView]:
        """List the tasks of a session's plan, in the order of the plan."""

    @calls(TASK)
    def plan_task(self, session: str, task: str) -> TaskView:
        """Get one task of a session's plan by its id. Raises TaskUnknown."""

    @Op
    def edit_plan(
        self, session: str, operations: Operations, *, seen: PlanView | int | None = None
    ) -> Steps[PlanView]:
        """Apply edits (add, change, drop, move, retry) to a plan's tasks: all of them, or none.

        An operation is `{"op": "add", "task": {...}}`, `{"op": "change", "id": ..., ...}`, or
        `drop`, `move` (behind the task `after`, or to the front) or `retry` of a task by `id`.
        `seen` is the plan or the version that you read; PlanChanged is raised if it has changed
        since, and has the plan as it is now. Raises PlanRefused.
        """
        try:
            edit = PlanEdit.model_validate({"operations": tuple(operations)})
        except ValidationError as error:
            raise RequestInvalid(first_error(error)) from None
        body = {"operations": [fields_of(one) for one in edit.operations]}
        call = request(EDIT, session, headers=_if_match(seen), body=body)
        return self._change(session, call, lambda plan: shows(plan, edit))

    @Op
    def approve_plan(self, session: str, *, seen: PlanView | int | None = None) -> Steps[PlanView]:
        """Approve a plan's draft, so that its tasks start. Raises AnswerUnwanted.

        `seen` is the plan or the version that you read; PlanChanged is raised if it has changed
        since, and has the plan as it is now.
        """
        call = request(APPROVE, session, headers=_if_match(seen))
        return self._change(session, call, lambda plan: plan.state in ("executing", "ended"))

    @Op
    def change_plan(self, session: str, text: str) -> Steps[PlanView]:
        """Ask the plan's team lead (an agent) for another draft. Raises AnswerUnwanted."""
        call = request(CHANGE, session, body={"text": text})
        return self._change(session, call, lambda plan: plan.state == "planning")

    @Op
    def decide_proposal(self, session: str, proposal: str, *, accept: bool) -> Steps[PlanView]:
        """Accept or refuse a task or edit that was proposed for a plan. Raises PlanRefused."""
        wanted = (proposal, "accepted" if accept else "refused")
        return self._change(
            session,
            request(DECIDE, session, proposal, body={"accept": accept}),
            lambda plan: any((one.id, one.status) == wanted for one in plan.proposals),
        )

    @calls(OWN_TASK)
    def own_task(self, session: str) -> TaskView:
        """Get the task of its parent's plan that a child session carries out. Raises NoPlan."""

    @Op
    def report(
        self,
        session: str,
        status: str,
        *,
        pr_url: str | None = None,
        notes: str | None = None,
        proposals: Sequence[Proposal | Mapping[str, Any]] = (),
    ) -> Ask[ReportView]:
        """Report the status of the task that a child session carries out to its parent's plan.

        `status` is pending, in_progress, completed, failed or blocked. Raises NoPlan if the
        session carries out no task, and ReportLate if it came too late.
        """
        fields = {"status": status, "pr_url": pr_url, "notes": notes, "proposals": (*proposals,)}
        try:
            found = TaskReport.model_validate({name: one for name, one in fields.items() if one})
        except ValidationError as error:
            raise RequestInvalid(first_error(error)) from None
        body = found.model_dump(mode="json", exclude_unset=True)
        return reads(ReportView, request(REPORT, session, body=body, headers=idempotent()))

    def _change(
        self, session: str, call: Call, is_done: Callable[[PlanView], bool]
    ) -> Steps[PlanView]:
        """Change a plan; a call that was repeated may have been carried out before."""
        answer: Answer = yield call
        try:
            return parsed(PlanView, answer)
        except (AnswerUnwanted, PlanRefused, PlanChanged):
            if answer.repeated:
                view = yield from self.plan(session)
                if is_done(view):
                    return view
            raise


def _if_match(seen: PlanView | int | None) -> dict[str, str]:
    """The header by which a change is refused if the plan is not the one that was read."""
    version = seen.version if isinstance(seen, PlanView) else seen
    return {} if version is None else {"If-Match": plan_etag(version)}


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
