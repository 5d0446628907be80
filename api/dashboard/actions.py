"""What a person does in the dashboard: control sessions, answer, send hints, decide on plans."""

from __future__ import annotations

from typing import Literal

from flask import Blueprint, Response, redirect, request

from api.auth import current_author, current_visitor
from api.dashboard.panels.answer_fields import given_answer
from api.dashboard.render import page
from api.problem_types import invalid
from app.domain.plan_errors import PlanChanged
from app.engine import Engine
from app.errors import AnswerUnwanted
from leadhand.models.documents import Budget
from leadhand.models.problems import FieldProblem, Problem
from leadhand.models.views import QuestionView

#: The event that makes the page fetch its panels.
CHANGED = "leadhand-changed"
_PLAN_CHANGED = "the plan has changed; look at it again"
_DONE = {
    "stop": "it stops; running steps are released",
    "resume": "it goes on",
    "exit": "it exits",
    "abort": "it is aborted; running steps are killed",
}


class Actions:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def control(self, session: str, verb: Literal["stop", "resume", "exit", "abort"]) -> Response:
        """POST .../VERB: stop, resume, exit or abort."""
        reason = request.form.get("reason", "").strip()
        if verb == "exit" and not reason:
            raise _missing("reason", "say why it exits")
        rounds = request.form.get("max_iterations", type=int)
        view = self._engine.control.apply(
            session,
            verb,
            reason=reason,
            max_iterations=rounds if verb == "resume" else None,
            budget=_raised() if verb == "resume" else None,
        )
        return _done(f"Session {session}: {_DONE[verb]}.", view.id)

    def retry(self, session: str) -> Response:
        """POST .../retry: run a step again."""
        step = request.form.get("step", "").strip()
        if not step:
            raise _missing("step", "name the step that runs again")
        self._engine.step_verbs.retry(session, step, by=None, seen=None)
        return _done(f"{step} of session {session} runs again.", session)

    def rename(self, session: str) -> Response:
        """POST .../rename: give the session a title; an empty one removes it."""
        title = request.form.get("reason", "").strip()[:120]
        self._engine.annotations.annotate(session, title=title)
        return _done(f"Session {session} is renamed.", session)

    def archive(self, session: str, verb: Literal["archive", "restore"]) -> Response:
        """POST .../archive and .../restore: hide the session from lists, or show it again."""
        self._engine.annotations.annotate(session, archived=verb == "archive")
        return _done(f"Session {session} is {verb}d.", session)

    def delete(self, session: str) -> Response:
        """POST .../delete: delete an ended session."""
        self._engine.deletion.delete(session, force=False, seen=None)
        if request.headers.get("HX-Request"):
            response = Response(status=204)
            response.headers["HX-Redirect"] = "/ui/sessions"
            return response
        return _see("/ui/sessions")

    def hint(self, session: str) -> Response:
        """POST .../hints: send a text to the session's next turn."""
        text = request.form.get("text", "").replace("\r\n", "\n")
        self._engine.inbox.hint(session, text, by=current_visitor())
        return _done("The next turn is given the hint.", session)

    def answers(self, session: str) -> Response:
        """POST .../answers: answer a question; who comes second learns who was first."""
        address = request.form.get("address") or None
        question = self._question(session, address)
        given = given_answer(question, request.form.to_dict(flat=False))
        try:
            self._engine.answers.give(session, given, address=address, by=current_author())
        except AnswerUnwanted as error:
            return _late("Somebody was faster", error.why)
        return _done("Your answer is recorded.", session)

    def approve(self, session: str) -> Response:
        """POST /ui/plans/ID/approve: approve a draft, so that its tasks start."""
        try:
            self._engine.plans.approve(session, by=current_author(), version=_seen())
        except PlanChanged:
            return _late("Look again", _PLAN_CHANGED)
        return _done("The plan is approved; its tasks start.", f"/ui/plans/{session}")

    def changes(self, session: str) -> Response:
        """POST /ui/plans/ID/changes: have the team lead change its draft."""
        text = request.form.get("text", "").strip()
        if not text:
            raise _missing("text", "say what should change")
        self._engine.plans.change(session, text, by=current_author())
        return _done("The team lead writes a new draft.", f"/ui/plans/{session}")

    def decide(self, session: str, proposal: str) -> Response:
        """POST /ui/plans/ID/proposals/ID: accept or refuse a proposed task or edit."""
        accept = request.form.get("decision") == "accept"
        by, seen = current_visitor(), _seen()
        try:
            self._engine.plans.decide(session, proposal, accept=accept, by=by, version=seen)
        except PlanChanged:
            return _late("Look again", _PLAN_CHANGED)
        word = "accepted" if accept else "refused"
        return _done(f"Proposal {proposal} is {word}.", f"/ui/plans/{session}")

    def _question(self, session: str, address: str | None) -> QuestionView | None:
        asked = self._engine.questions.of_tree(session, limit=100).items
        mine = (one for one in asked if one.session == session)
        return next((one for one in mine if address in (None, one.address)), None)

    def add_to(self, routes: Blueprint) -> None:
        """Register the routes."""
        base, plan = "/sessions/<session>", "/plans/<session>"
        for path, view in (
            (f"{base}/<any(stop, resume, exit, abort):verb>", self.control),
            (f"{base}/retry", self.retry),
            (f"{base}/rename", self.rename),
            (f"{base}/<any(archive, restore):verb>", self.archive),
            (f"{base}/delete", self.delete),
            (f"{base}/hints", self.hint),
            (f"{base}/answers", self.answers),
            (f"{plan}/approve", self.approve),
            (f"{plan}/changes", self.changes),
            (f"{plan}/proposals/<proposal>", self.decide),
        ):
            routes.add_url_rule(path, view.__name__, view, methods=["POST"])


def _raised() -> Budget | None:
    """The limits that a resume raises."""
    given = {
        name: request.form[name]
        for name in Budget.model_fields
        if request.form.get(name, "").strip()
    }
    return Budget.model_validate(given) if given else None


def _done(text: str, target: str) -> Response:
    """A message of what happened; without a script, the page that shows it."""
    if not request.headers.get("HX-Request"):
        return _see(target if target.startswith("/") else f"/ui/sessions/{target}")
    return _notice(page("notice.html", problem=None, text=text))


def _seen() -> int:
    """The version of the plan that the page showed; one that no plan has if it named none."""
    return request.form.get("version", -1, type=int)


def _late(title: str, why: str) -> Response:
    """Something else came first: a message that stays, and panels as they are now."""
    problem = Problem(title=title, status=409, detail=why)
    return _notice(page("notice.html", status=409, problem=problem, text=""))


def _notice(response: Response) -> Response:
    response.headers["HX-Retarget"] = "#notices"
    response.headers["HX-Reswap"] = "beforeend"
    response.headers["HX-Trigger"] = CHANGED
    return response


def _see(path: str) -> Response:
    response = redirect(path, 303)
    assert isinstance(response, Response)
    return response


def _missing(field: str, hint: str) -> Exception:
    return invalid((FieldProblem(field=field, message="it is missing", hint=hint),))
