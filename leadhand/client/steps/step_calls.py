# Generated from async_step_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client on single steps of a session."""

from __future__ import annotations

from leadhand.client.calls import Call
from leadhand.client.connection import Connection
from leadhand.client.requests import read_session
from leadhand.client.steps import requests
from leadhand.models.views import SessionView


class StepCalls:
    """Skips steps of sessions."""

    _connection: Connection

    def skip(
        self, session: str, step: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """Skip a step that has not run or has failed; what depends on it goes on without it.

        A failed session resumes with that. Raises ControlRefused for a step that runs.
        """
        return self._act(requests.skip(session, step, reason, seen))

    def _act(self, call: Call) -> SessionView:
        return read_session(self._connection.transport.send(call))
