"""Plans: the list, and the board of one plan with its tasks by status."""

from __future__ import annotations

from flask import Blueprint, Response, g, request

from api.dashboard.panels.branches import branches_of
from api.dashboard.panels.operations import proposed
from api.dashboard.render import page
from app.domain.states import FINAL
from app.engine import Engine
from app.security.api_tokens import Scope
from leadhand.contract.sessions import SessionFilter
from leadhand.models.views import PlanView, TaskView

LIMIT = 50
#: Messages to the team lead that the board shows.
MESSAGES = 50
#: The columns of the board, with the statuses of their tasks.
COLUMNS = (
    ("Pending", ("pending",)),
    ("In progress", ("in_progress",)),
    ("Blocked or failed", ("blocked", "failed")),
    ("Done", ("completed",)),
)


def board(plan: PlanView) -> list[tuple[str, list[TaskView]]]:
    """Groups the tasks of a plan by status into the columns of a board, in the plan's order."""
    return [
        (title, [task for task in plan.tasks if task.status in statuses])
        for title, statuses in COLUMNS
    ]


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the page that lists plans, and the page of one plan with its tasks."""

    def plans() -> Response:
        cursor = request.args.get("cursor") or None
        found = engine.queries.sessions(SessionFilter(kind="plan"), limit=LIMIT, cursor=cursor)
        return page("plans.html", found=found)

    def values(session: str) -> dict[str, object]:
        plan = engine.plans.view(session)
        view = engine.queries.session(session)
        return {
            "plan": plan,
            "view": view,
            "editable": view.status not in FINAL and Scope.CONTROL in g.visitor.scopes,
            "columns": board(plan),
            "branches": branches_of(plan.tasks),
            "messages": engine.messages.newest(session, limit=MESSAGES),
            "proposed": proposed,
            "open": [one for one in plan.proposals if one.status == "open"],
        }

    def plan(session: str) -> Response:
        return page("plan.html", values(session))

    def plan_panel(session: str) -> Response:
        return page("plan_board.html", values(session))

    routes.add_url_rule("/plans", "plans", plans)
    routes.add_url_rule("/plans/<session>", "plan", plan)
    routes.add_url_rule("/plans/<session>/panels/board", "plan_panel", plan_panel)
