"""The operations on plans: read, edit, approve, decide about proposals, and report about a task."""

from __future__ import annotations

from leadhand.contract.bodies import Body, NoBody, NoQuery
from leadhand.contract.operation import (
    READS,
    ApiResponse,
    BodyRight,
    Operation,
    Scope,
    replies,
)
from leadhand.models.plans import PlanChange, PlanEdit, TaskReport
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
