"""REST routes for plans: read, edit, approve and change one, and report about a task of it."""

from __future__ import annotations

from flask import Blueprint, Response, request

from api import requests
from api.auth import current_author, current_caller, current_visitor
from api.problem_types import plan_changed, task_unknown
from api.responses import answer, plan_answer
from app.domain.plan_errors import PlanChanged
from app.engine import Engine
from leadhand.models.etags import parse_plan_etag
from leadhand.models.plans import PlanChange, PlanEdit, TaskReport
from leadhand.models.views import Page, TaskView

#: A version that no plan has: that of an If-Match with unknown tags only.
NO_VERSION = -1


class Decision(requests.Body):
    """A decision about a proposal."""

    #: Whether the proposed task becomes one of the plan.
    accept: bool


class Plans:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def one(self, session: str) -> Response:
        """GET .../plan: return the plan of a session with its ETag; status 304 if unchanged."""
        requests.query(requests.NoQuery)
        return plan_answer(self._engine.plans.view(session))

    def edit(self, session: str) -> Response:
        """PATCH .../plan: apply edits to the tasks of a plan, unless it changed since If-Match."""
        requests.query(requests.NoQuery)
        asked = requests.body(PlanEdit)
        plans, version = self._engine.plans, _if_match()
        try:
            view = plans.edit(session, asked, version=version, by=current_visitor())
        except PlanChanged as error:
            raise plan_changed(str(error), plans.view(session)) from None
        return plan_answer(view, changed=True)

    def approve(self, session: str) -> Response:
        """POST .../plan/approve: approve the draft of a plan, so that its tasks start."""
        requests.query(requests.NoQuery)
        requests.body(requests.NoBody)
        plans, version = self._engine.plans, _if_match()
        try:
            view = plans.approve(session, by=current_author(), version=version)
        except PlanChanged as error:
            raise plan_changed(str(error), plans.view(session)) from None
        return plan_answer(view, changed=True, status=202)

    def changes(self, session: str) -> Response:
        """POST .../plan/changes: ask the team lead (an agent) for another draft of the plan."""
        requests.query(requests.NoQuery)
        asked = requests.body(PlanChange)
        view = self._engine.plans.change(session, asked.text, by=current_author())
        return plan_answer(view, changed=True, status=202)

    def tasks(self, session: str) -> Response:
        """GET .../plan/tasks: list the tasks in the order of the plan."""
        requests.query(requests.NoQuery)
        return answer(Page[TaskView](items=self._engine.plans.view(session).tasks))

    def task(self, session: str, task: str) -> Response:
        """GET .../plan/tasks/TASK: show a task."""
        requests.query(requests.NoQuery)
        plan = self._engine.plans.view(session)
        found = next((one for one in plan.tasks if one.id == task), None)
        if found is None:
            raise task_unknown(session, task, [one.id for one in plan.tasks])
        return answer(found)

    def decide(self, session: str, proposal: str) -> Response:
        """POST .../plan/proposals/PROPOSAL: accept or refuse a proposed task or edit of a plan."""
        requests.query(requests.NoQuery)
        asked = requests.body(Decision)
        view = self._engine.plans.decide(
            session, proposal, accept=asked.accept, by=current_visitor()
        )
        return plan_answer(view, changed=True)

    def own_task(self, session: str) -> Response:
        """GET /v1/sessions/ID/task: show the task that a child session carries out."""
        requests.query(requests.NoQuery)
        return answer(self._engine.plans.task(session))

    def report(self, session: str) -> Response:
        """POST /v1/sessions/ID/reports: report the status of the child session's task."""
        requests.query(requests.NoQuery)
        key, report = requests.idempotency_key(), requests.body(TaskReport)
        return answer(
            self._engine.plans.report(session, report, by=current_caller(), idempotency_key=key)
        )


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of plans, tasks and reports."""
    plans = Plans(engine)
    routes = Blueprint("plans", __name__, url_prefix="/v1/sessions/<session:session>")
    routes.add_url_rule("/plan", "one", plans.one)
    routes.add_url_rule("/plan", "edit", plans.edit, methods=["PATCH"])
    routes.add_url_rule("/plan/approve", "approve", plans.approve, methods=["POST"])
    routes.add_url_rule("/plan/changes", "changes", plans.changes, methods=["POST"])
    routes.add_url_rule("/plan/tasks", "tasks", plans.tasks)
    routes.add_url_rule("/plan/tasks/<task>", "task", plans.task)
    routes.add_url_rule("/plan/proposals/<proposal>", "decide", plans.decide, methods=["POST"])
    routes.add_url_rule("/task", "own_task", plans.own_task)
    routes.add_url_rule("/reports", "report", plans.report, methods=["POST"])
    return routes


def _if_match() -> int | None:
    """The version that If-Match accepts; None if it is absent or `*`."""
    given = request.headers.get("If-Match")
    if given is None or given.strip() == "*":
        return None
    versions = (parse_plan_etag(tag) for tag in given.split(","))
    return next((version for version in versions if version is not None), NO_VERSION)
