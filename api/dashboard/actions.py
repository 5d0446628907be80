"""What a person does with a session in the dashboard: control it, answer, send hints."""

from __future__ import annotations

from typing import Literal

from flask import Blueprint, Response, request

from api.auth import current_author, current_visitor, may_bring_commands
from api.dashboard.panels.answer_fields import given_answer
from api.dashboard.replies import done, go_to, late, missing, read_form
from app.engine import Engine
from app.errors import AnswerUnwanted
from leadhand.contract import sessions
from leadhand.models.views import QuestionView

_DONE = {
    "stop": "it stops; running steps are released",
    "resume": "it continues",
    "exit": "it exits",
    "abort": "it is aborted; running steps are killed",
}


class Actions:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def control(self, session: str, verb: Literal["stop", "resume", "exit", "abort"]) -> Response:
        """POST .../VERB: stop, resume, exit or abort a session; an exit needs a reason."""
        reason = request.form.get("reason", "").strip()
        if verb == "exit" and not reason:
            raise missing("reason", "say why it exits")
        asked = read_form(sessions.Resume) if verb == "resume" else sessions.Resume()
        view = self._engine.control.apply(
            session,
            verb,
            reason=reason,
            max_iterations=asked.max_iterations,
            budget=asked.budget,
            after=asked.position,
            accept_protected=asked.accept_protected,
            free=may_bring_commands(self._engine),
        )
        return done(f"Session {session}: {_DONE[verb]}.", view.id)

    def rename(self, session: str) -> Response:
        """POST .../rename: give the session a title; an empty one removes it."""
        title = request.form.get("reason", "").strip()[:120]
        self._engine.annotations.annotate(session, title=title)
        return done(f"Session {session} is renamed.", session)

    def note(self, session: str) -> Response:
        """POST .../note: write a note on the session; an empty one removes it."""
        text = request.form.get("reason", "").replace("\r\n", "\n").strip()[:2000]
        self._engine.annotations.annotate(session, note=text)
        return done(f"The note of session {session} is {'kept' if text else 'removed'}.", session)

    def archive(self, session: str, verb: Literal["archive", "restore"]) -> Response:
        """POST .../archive and .../restore: hide the session from lists, or show it again."""
        self._engine.annotations.annotate(session, archived=verb == "archive")
        return done(f"Session {session} is {verb}d.", session)

    def delete(self, session: str) -> Response:
        """POST .../delete: delete an ended session."""
        self._engine.deletion.delete(session, force=False, seen=None)
        if request.form.get("stay"):  # the list that shows it
            return done(f"Session {session} is deleted.", "/ui/sessions")
        return go_to("/ui/sessions")

    def hint(self, session: str) -> Response:
        """POST .../hints: send a text to the session's next turn."""
        text = request.form.get("text", "").replace("\r\n", "\n")
        self._engine.inbox.hint(session, text, by=current_visitor())
        return done("The next turn is given the hint.", session)

    def answers(self, session: str) -> Response:
        """POST .../answers: answer a question, unless another person was first."""
        address = request.form.get("address") or None
        question = self._question(session, address)
        given = given_answer(question, request.form.to_dict(flat=False))
        try:
            self._engine.answers.give(session, given, address=address, by=current_author())
        except AnswerUnwanted as error:
            return late("Somebody was faster", error.why)
        return done("Your answer is recorded.", session)

    def _question(self, session: str, address: str | None) -> QuestionView | None:
        asked = self._engine.questions.of_tree(session, limit=100).items
        mine = (one for one in asked if one.session == session)
        return next((one for one in mine if address in (None, one.address)), None)

    def add_to(self, routes: Blueprint) -> None:
        """Registers the routes of actions on sessions."""
        base = "/sessions/<session>"
        for path, view in (
            (f"{base}/<any(stop, resume, exit, abort):verb>", self.control),
            (f"{base}/rename", self.rename),
            (f"{base}/note", self.note),
            (f"{base}/<any(archive, restore):verb>", self.archive),
            (f"{base}/delete", self.delete),
            (f"{base}/hints", self.hint),
            (f"{base}/answers", self.answers),
        ):
            routes.add_url_rule(path, view.__name__, view, methods=["POST"])
