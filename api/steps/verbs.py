"""Single steps of a session over REST, and sessions that are made from others."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response

from api import requests
from api.auth import current_author, current_caller, may_bring_commands
from api.requests import NoQuery
from api.responses import session_answer
from api.steps import bodies
from api.steps.copies import make_fork, make_rerun
from app.engine import Engine
from app.operations.submit import Submitted
from app.security.step_tokens import Caller


class StepVerbs:
    """Calls on one step of a session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def routes(self) -> tuple[Callable[[str], Response], ...]:
        """Returns the handlers of retry, skip, fork and rerun."""
        return (self.retry, self.skip, self.fork, self.rerun)

    def retry(self, session: str) -> Response:
        """POST .../retry: run a step again, and all steps that depend on it."""
        asked = requests.body(requests.Retry)
        requests.query(NoQuery)
        view = self._engine.step_verbs.retry(
            session,
            asked.step,
            by=_own_caller(session),
            seen=requests.if_match(),
            free=may_bring_commands(self._engine),
        )
        return session_answer(view, 202)

    def skip(self, session: str) -> Response:
        """POST .../skip: skip a step; dependent steps run without its result."""
        asked = requests.body(requests.Skip)
        requests.query(NoQuery)
        view = self._engine.skips.skip(
            session,
            asked.step,
            reason=asked.reason,
            author=current_author(),
            by=_own_caller(session),
            seen=requests.if_match(),
            free=may_bring_commands(self._engine),
        )
        return session_answer(view, 202)

    def fork(self, session: str) -> Response:
        """POST .../fork: create a session that continues from a point of this one."""
        asked = requests.body(bodies.Fork)
        requests.query(NoQuery)
        key = requests.idempotency_key()
        made = make_fork(self._engine, session, asked, key=key)
        return self._created(made)

    def rerun(self, session: str) -> Response:
        """POST .../rerun: create a session from the document of this one."""
        asked = requests.body(bodies.Rerun)
        requests.query(NoQuery)
        key = requests.idempotency_key()
        made = make_rerun(self._engine, session, asked, key=key)
        return self._created(made)

    def _created(self, made: Submitted) -> Response:
        view = self._engine.queries.session(made.session)
        return session_answer(view, 202, headers={"Location": f"/v1/sessions/{made.session}"})


def _own_caller(session: str) -> Caller | None:
    """The attempt that calls, if it is one of this session."""
    caller = current_caller()
    return caller if caller is not None and caller.session == session else None
