"""What a person does with a plan in the dashboard: approve it, decide on proposals, edit tasks."""

from __future__ import annotations

import re
from collections.abc import Callable

from flask import Blueprint, Response, request
from pydantic import JsonValue, ValidationError

from api.auth import current_author, current_visitor
from api.dashboard.replies import done, late, missing
from api.problem_types import invalid
from api.validation_errors import field_problems
from app.domain.plan_errors import PlanChanged
from app.engine import Engine
from leadhand.models.plans import PlanEdit

_CHANGED = "the plan has changed; look at it again"
_BETWEEN_IDS = re.compile(r"[\s,]+")


class PlanActions:
    """One method per route. Each applies to the version of the plan that the page showed."""

    def __init__(self, engine: Engine) -> None:
        self._plans = engine.plans

    def approve(self, session: str) -> Response:
        """POST .../approve: approve the draft of a plan, so that its tasks start."""
        return _carry_out(
            session,
            "The plan is approved; its tasks start.",
            lambda: self._plans.approve(session, by=current_author(), version=_seen()),
        )

    def changes(self, session: str) -> Response:
        """POST .../changes: ask the team lead (an agent) for another draft of a plan."""
        text = request.form.get("text", "").strip()
        if not text:
            raise missing("text", "say what should change")
        self._plans.change(session, text, by=current_author())
        return done("The team lead writes a new draft.", f"/ui/plans/{session}")

    def decide(self, session: str, proposal: str) -> Response:
        """POST .../proposals/ID: accept or refuse a proposed task or edit."""
        accept = request.form.get("decision") == "accept"
        word = "accepted" if accept else "refused"
        by, seen = current_visitor(), _seen()
        return _carry_out(
            session,
            f"Proposal {proposal} is {word}.",
            lambda: self._plans.decide(session, proposal, accept=accept, by=by, version=seen),
        )

    def add_task(self, session: str) -> Response:
        """POST .../tasks: add a task to a plan."""
        name = request.form.get("id", "").strip()
        task: dict[str, JsonValue] = {"id": name, **_task_fields()}
        return self._edit(session, {"op": "add", "task": task}, f"Task {name} is added.")

    def change_task(self, session: str, task: str) -> Response:
        """POST .../tasks/ID/change: change the title, description or dependencies of a task."""
        operation: dict[str, JsonValue] = {"op": "change", "id": task, **_task_fields()}
        return self._edit(session, operation, f"Task {task} is changed.")

    def drop_task(self, session: str, task: str) -> Response:
        """POST .../tasks/ID/drop: remove a task that has not started."""
        return self._edit(session, {"op": "drop", "id": task}, f"Task {task} is removed.")

    def retry_task(self, session: str, task: str) -> Response:
        """POST .../tasks/ID/retry: run a failed or blocked task again."""
        return self._edit(session, {"op": "retry", "id": task}, f"Task {task} runs again.")

    def _edit(self, session: str, operation: dict[str, JsonValue], text: str) -> Response:
        given: dict[str, JsonValue] = {"operations": [operation]}
        try:
            edit = PlanEdit.model_validate(given)
        except ValidationError as error:
            raise invalid(field_problems(error, given, PlanEdit)) from None
        by, seen = current_visitor(), _seen()
        return _carry_out(
            session, text, lambda: self._plans.edit(session, edit, version=seen, by=by)
        )

    def add_to(self, routes: Blueprint) -> None:
        """Registers the routes of actions on plans."""
        base = "/plans/<session>"
        for path, view in (
            (f"{base}/approve", self.approve),
            (f"{base}/changes", self.changes),
            (f"{base}/proposals/<proposal>", self.decide),
            (f"{base}/tasks", self.add_task),
            (f"{base}/tasks/<task>/change", self.change_task),
            (f"{base}/tasks/<task>/drop", self.drop_task),
            (f"{base}/tasks/<task>/retry", self.retry_task),
        ):
            routes.add_url_rule(path, view.__name__, view, methods=["POST"])


def _carry_out(session: str, text: str, action: Callable[[], object]) -> Response:
    """Runs an action on the plan that the page showed; another version is not touched."""
    try:
        action()
    except PlanChanged:
        return late("Look again", _CHANGED)
    return done(text, f"/ui/plans/{session}")


def _task_fields() -> dict[str, JsonValue]:
    """The fields of the form of a task; its dependencies are ids with commas or spaces between."""
    sent = request.form
    ids = _BETWEEN_IDS.split(sent.get("dependencies", ""))
    return {
        "title": sent.get("title", "").strip(),
        "description": sent.get("description", "").replace("\r\n", "\n"),
        "dependencies": [one for one in ids if one],
    }


def _seen() -> int:
    """The version of the plan that the page showed; one that no plan has if it named none."""
    return request.form.get("version", -1, type=int)
