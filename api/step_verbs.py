"""Single steps of a session over REST: retry and skip."""

from __future__ import annotations

from collections.abc import Callable

from flask import Response

from api import requests
from api.auth import current_caller
from api.requests import NoQuery
from api.responses import session_answer
from app.engine import Engine
from app.security.step_tokens import Caller


class StepVerbs:
    """Calls on one step of a session."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @property
    def routes(self) -> tuple[Callable[[str], Response], ...]:
        """The calls, each under its own name below the session."""
        return (self.retry, self.skip)

    def retry(self, session: str) -> Response:
        """POST .../retry: run a step again."""
        asked = requests.body(requests.Retry)
        requests.query(NoQuery)
        view = self._engine.step_verbs.retry(
            session, asked.step, by=_own_caller(session), seen=requests.if_match()
        )
        return session_answer(view, 202)

    def skip(self, session: str) -> Response:
        """POST .../skip: skip a step."""
        asked = requests.body(requests.Skip)
        requests.query(NoQuery)
        view = self._engine.skips.skip(
            session,
            asked.step,
            reason=asked.reason,
            by=_own_caller(session),
            seen=requests.if_match(),
        )
        return session_answer(view, 202)


def _own_caller(session: str) -> Caller | None:
    """The attempt that calls, if it is one of this session."""
    caller = current_caller()
    return caller if caller is not None and caller.session == session else None
