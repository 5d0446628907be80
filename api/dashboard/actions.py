"""What a person does in the dashboard: each action is an operation of the API, sent as a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from flask import Blueprint, Response, request
from pydantic import BaseModel, JsonValue, ValidationError

from api.dashboard.replies import done, given_answer, go_to, late, read_form
from api.serving import Call, carry_out
from api.validation_errors import field_problems
from app.engine import Engine
from app.sessions.questions import list_questions_of_tree
from leadhand.contract import messages, plans, sessions, submissions
from leadhand.contract.operation import NoBody, Operation
from leadhand.errors import AnswerUnwanted, PlanChanged, Refused, RequestInvalid
from leadhand.models.etags import plan_etag
from leadhand.models.plans import PlanEdit
from leadhand.models.views.explain import QuestionView
from leadhand.models.views.session import SessionView

_BETWEEN_IDS = re.compile(r"[\s,]+")
#: Maximum length of an idempotency key that a form sends.
_KEY = 120


class Action(NamedTuple):
    """An operation on a session whose form has the fields of its body."""

    operation: Operation[Any]
    #: What the page says afterwards, with the session and the fields in it.
    says: str
    #: Fields that the form has not.
    fields: Mapping[str, JsonValue] = {}


#: By the last part of the path.
ACTIONS = {
    "stop": Action(sessions.STOP, "Session {session}: it stops; running steps are released."),
    "resume": Action(sessions.RESUME, "Session {session}: it continues."),
    "exit": Action(sessions.EXIT, "Session {session}: it exits."),
    "abort": Action(sessions.ABORT, "Session {session}: it is aborted; running steps are killed."),
    "retry": Action(sessions.RETRY, "{step} of session {session} runs again."),
    "skip": Action(sessions.SKIP, "{step} of session {session} is skipped."),
    "rename": Action(sessions.ANNOTATE, "Session {session} is renamed.", {"title": ""}),
    "note": Action(sessions.ANNOTATE, "The note of session {session} is {became}.", {"note": ""}),
    "archive": Action(sessions.ANNOTATE, "Session {session} is archived.", {"archived": True}),
    "restore": Action(sessions.ANNOTATE, "Session {session} is restored.", {"archived": False}),
    "hints": Action(messages.HINT, "The next turn is given the hint."),
}
#: Those that make a session, which is shown then.
COPIES: Mapping[str, Operation[Any]] = {"fork": submissions.FORK, "rerun": submissions.RERUN}


def add_to(routes: Blueprint, engine: Engine) -> None:
    """Registers the routes of all actions on sessions and plans."""
    one, plan = "/sessions/<session>", "/plans/<session>"
    for path, view in (
        (f"{one}/<any({', '.join(ACTIONS)}):verb>", act),
        (f"{one}/<any({', '.join(COPIES)}):verb>", copy),
        (f"{one}/delete", delete),
        (f"{one}/answers", answer_question),
        (f"{plan}/approve", approve),
        (f"{plan}/changes", change_plan),
        (f"{plan}/proposals/<proposal>", decide),
        (f"{plan}/tasks", add_task),
        (f"{plan}/tasks/<task>/change", change_task),
        (f"{plan}/tasks/<task>/drop", drop_task),
        (f"{plan}/tasks/<task>/retry", retry_task),
    ):
        routes.add_url_rule(path, view.__name__, partial(view, engine), methods=["POST"])


def act(engine: Engine, session: str, verb: str) -> Response:
    """POST .../VERB: carry out an action on a session."""
    action = ACTIONS[verb]
    asked = read_form(action.operation.body, action.fields)
    carry_out(engine, action.operation, Call({"session": session}, None, None), asked)
    fields = asked.model_dump()
    became = "kept" if fields.get("note") else "removed"
    return done(action.says.format(session=session, became=became, **fields), session)


def copy(engine: Engine, session: str, verb: str) -> Response:
    """POST .../fork and .../rerun: make a session from this one, once for each form."""
    operation = COPIES[verb]
    call = Call({"session": session}, None, request.form.get("key", "")[:_KEY] or None)
    made = carry_out(engine, operation, call, read_form(operation.body))
    assert isinstance(made, SessionView)
    return go_to(f"/ui/sessions/{made.id}")


def delete(engine: Engine, session: str) -> Response:
    """POST .../delete: delete an ended session."""
    call = Call({"session": session}, None, None)
    carry_out(engine, sessions.DELETE, call, sessions.DeleteQuery())
    if request.form.get("stay"):  # the list that shows it
        return done(f"Session {session} is deleted.", "/ui/sessions")
    return go_to("/ui/sessions")


def answer_question(engine: Engine, session: str) -> Response:
    """POST .../answers: answer a question, unless another person was first."""
    address = request.form.get("address") or None
    question = _question(engine, session, address)
    given = given_answer(question, request.form.to_dict(flat=False))
    asked = messages.Answers.model_construct(**given.model_dump(), address=address)
    try:
        carry_out(engine, messages.ANSWER, Call({"session": session}, None, None), asked)
    except AnswerUnwanted as error:
        return late("Somebody was faster", error.why)
    return done("Your answer is recorded.", session)


def _question(engine: Engine, session: str, address: str | None) -> QuestionView | None:
    asked = list_questions_of_tree(engine, session, limit=100).items
    mine = (one for one in asked if one.session == session)
    return next((one for one in mine if address in (None, one.address)), None)


def approve(engine: Engine, session: str) -> Response:
    """POST .../approve: approve the draft of a plan, so that its tasks start."""
    text = "The plan is approved; its tasks start."
    return _on_plan(engine, plans.APPROVE, session, NoBody(), text)


def change_plan(engine: Engine, session: str) -> Response:
    """POST .../changes: ask the team lead (an agent) for another draft of a plan."""
    asked = read_form(plans.CHANGE.body)
    return _on_plan(engine, plans.CHANGE, session, asked, "The team lead writes a new draft.")


def decide(engine: Engine, session: str, proposal: str) -> Response:
    """POST .../proposals/ID: accept or refuse a proposed task or edit."""
    accept = request.form.get("decision") == "accept"
    text = f"Proposal {proposal} is {'accepted' if accept else 'refused'}."
    asked = plans.Decision(accept=accept)
    return _on_plan(engine, plans.DECIDE, session, asked, text, proposal=proposal)


def add_task(engine: Engine, session: str) -> Response:
    """POST .../tasks: add a task to a plan."""
    name = request.form.get("id", "").strip()
    added: dict[str, JsonValue] = {"op": "add", "task": {"id": name, **_task_fields()}}
    return _edit(engine, session, added, f"Task {name} is added.")


def change_task(engine: Engine, session: str, task: str) -> Response:
    """POST .../tasks/ID/change: change the title, description or dependencies of a task."""
    changed: dict[str, JsonValue] = {"op": "change", "id": task, **_task_fields()}
    return _edit(engine, session, changed, f"Task {task} is changed.")


def drop_task(engine: Engine, session: str, task: str) -> Response:
    """POST .../tasks/ID/drop: remove a task that has not started."""
    return _edit(engine, session, {"op": "drop", "id": task}, f"Task {task} is removed.")


def retry_task(engine: Engine, session: str, task: str) -> Response:
    """POST .../tasks/ID/retry: run a failed or blocked task again."""
    return _edit(engine, session, {"op": "retry", "id": task}, f"Task {task} runs again.")


def _edit(engine: Engine, session: str, operation: dict[str, JsonValue], text: str) -> Response:
    given: dict[str, JsonValue] = {"operations": [operation]}
    try:
        asked = PlanEdit.model_validate(given)
    except ValidationError as error:
        raise RequestInvalid.of_fields(field_problems(error, given, PlanEdit)) from None
    return _on_plan(engine, plans.EDIT, session, asked, text)


def _on_plan(
    engine: Engine,
    operation: Operation[Any],
    session: str,
    asked: BaseModel,
    text: str,
    **path: str,
) -> Response:
    """Carries out an action on the version of a plan that the page showed, and on no other."""
    seen = plan_etag(request.form.get("version", -1, type=int))
    call = Call({"session": session, **path}, None, None, seen)
    try:
        carry_out(engine, operation, call, asked)
    except Refused as refusal:
        if refusal.problem.type != PlanChanged.kind.uri:
            raise
        return late("Look again", "the plan has changed; look at it again")
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
