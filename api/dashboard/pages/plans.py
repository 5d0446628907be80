"""Plans: the list, and the board of one plan with its tasks by status."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flask import Blueprint, Response, g, request
from pydantic import JsonValue

from api.dashboard.patches import branches_of
from api.dashboard.render import page
from app.core.states import FINAL
from app.engine import Engine
from app.plans import plans as app_plans
from app.security.api_tokens import Scope
from app.sessions.inbox import list_newest_messages
from leadhand.contract.sessions import SessionsWanted
from leadhand.models.views.plan import PlanView, ProposalView, TaskView

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
_VERBS = {"add": "Add", "change": "Change", "drop": "Drop", "move": "Move", "retry": "Run again"}
#: What a proposed task sets; the rest of a view says how a task goes.
_PLANNED = {
    "title", "description", "dependencies", "agent", "model", "checkers", "rule", "file_scope",
    "priority", "max_iterations",
}  # fmt: skip


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
        found = engine.queries.sessions(SessionsWanted(kind="plan"), limit=LIMIT, cursor=cursor)
        return page("plans.html", found=found)

    def values(session: str) -> dict[str, object]:
        plan = app_plans.show(engine, session)
        view = engine.queries.session(session)
        return {
            "plan": plan,
            "view": view,
            "editable": view.status not in FINAL and Scope.CONTROL in g.visitor.scopes,
            "columns": board(plan),
            "branches": branches_of(plan.tasks),
            "messages": list_newest_messages(engine, session, limit=MESSAGES),
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
