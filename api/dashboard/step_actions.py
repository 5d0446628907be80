"""What a person does with single steps, and to make a session from another one."""

from __future__ import annotations

from flask import Blueprint, Response, request

from api.auth import current_author, may_bring_commands
from api.dashboard.replies import done, go_to, read_form
from api.steps import make_fork, make_rerun
from app.engine import Engine
from leadhand.contract import sessions

#: Maximum length of an idempotency key that a form sends.
_KEY = 120


class StepActions:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def retry(self, session: str) -> Response:
        """POST .../retry: run a step again, and all steps that depend on it."""
        asked = read_form(sessions.Retry)
        free = may_bring_commands(self._engine)
        self._engine.step_verbs.retry(session, asked.step, free=free)
        return done(f"{asked.step} of session {session} runs again.", session)

    def skip(self, session: str) -> Response:
        """POST .../skip: skip a step; dependent steps run without its result."""
        asked = read_form(sessions.Skip)
        self._engine.skips.skip(
            session,
            asked.step,
            reason=asked.reason,
            author=current_author(),
            free=may_bring_commands(self._engine),
        )
        return done(f"{asked.step} of session {session} is skipped.", session)

    def fork(self, session: str) -> Response:
        """POST .../fork: create a session that continues from a point of this one."""
        asked = read_form(sessions.Fork)
        made = make_fork(self._engine, session, asked, key=_key())
        return go_to(f"/ui/sessions/{made.session}")

    def rerun(self, session: str) -> Response:
        """POST .../rerun: create a session from the document of this one."""
        asked = read_form(sessions.Rerun)
        made = make_rerun(self._engine, session, asked, key=_key())
        return go_to(f"/ui/sessions/{made.session}")

    def add_to(self, routes: Blueprint) -> None:
        """Registers the routes of actions on steps."""
        for view in (self.retry, self.skip, self.fork, self.rerun):
            name = view.__name__
            routes.add_url_rule(f"/sessions/<session>/{name}", name, view, methods=["POST"])


def _key() -> str | None:
    """The idempotency key of the form, so that a form that is sent twice makes one session."""
    return request.form.get("key", "")[:_KEY] or None
