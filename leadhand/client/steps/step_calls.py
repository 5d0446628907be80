# Generated from async_step_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client on single steps of a session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pydantic import JsonValue

from leadhand.client.calls import Call
from leadhand.client.requests import read_session
from leadhand.client.steps import requests
from leadhand.client.submit.environment_calls import EnvironmentCalls
from leadhand.models.views import SessionView


class StepCalls(EnvironmentCalls):
    """Skips steps of sessions, and makes sessions from others."""

    def skip(
        self, session: str, step: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """Skip a step that has not run or has failed; dependent steps run without its result.

        A failed session resumes with that. Raises ControlRefused for a step that runs.
        """
        return self._act(requests.skip(session, step, reason, seen))

    def fork(
        self,
        session: str,
        after: str | None = None,
        *,
        inputs: Mapping[str, JsonValue] | None = None,
        tools: Mapping[str, str] | None = None,
        agent: str | None = None,
        folder: Literal["as-is"] | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SessionView:
        """Create a session that copies another one's outcomes up to a point and runs the rest.

        `after` names the last step that counts as done. What refers to a changed input runs again.
        `folder="as-is"` lets it work in the session's folder as that is now; by default it works
        in a git worktree at the recorded state. Variables are as of
        `submit`: those that the other session got are not taken over.
        """
        call = requests.fork(
            session,
            idempotency_key,
            after=after,
            inputs=None if inputs is None else dict(inputs),
            tools=None if tools is None else dict(tools),
            agent=agent,
            folder=folder,
            label=label,
            **self._with_environment({}, env),
        )
        return self._act(call)

    def rerun(
        self,
        session: str,
        *,
        task: str | None = None,
        checkers: Sequence[requests.CheckerSpec] | None = None,
        agent: str | None = None,
        inputs: Mapping[str, JsonValue] | None = None,
        label: str | None = None,
        idempotency_key: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SessionView:
        """Start a new session that runs another one's document from the start, with changes."""
        call = requests.rerun(
            session,
            idempotency_key,
            checkers,
            task=task,
            agent=agent,
            inputs=None if inputs is None else dict(inputs),
            label=label,
            **self._with_environment({}, env),
        )
        return self._act(call)

    def _act(self, call: Call) -> SessionView:
        return read_session(self._connection.transport.send(call))
