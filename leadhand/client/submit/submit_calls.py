# Generated from async_submit_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client that start sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from leadhand.client.origin import Origin, ParentEnd
from leadhand.client.requests import Document, read_session
from leadhand.client.submit import requests
from leadhand.client.submit.environment_calls import EnvironmentCalls
from leadhand.flows.documents import NO_WISHES, FlowRun
from leadhand.models.views import SessionView


class SubmitCalls(EnvironmentCalls):
    """Starts sessions."""

    def submit(
        self,
        document: Document,
        idempotency_key: str | None = None,
        *,
        on_parent_end: ParentEnd | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SessionView:
        """Start a session from a document; the same key and document return the same session.

        Inside a doer or checker it is a child of the running session, and the same document
        without a key is the same child. `on_parent_end` says whether the child is to `abort`, as
        it does unless given, or to `let-go-on` at the end of what started it.

        `env` has variables for its doers and checkers. Embedded services also get PATH,
        VIRTUAL_ENV and the variables that agents' entries name, as they are in this process.
        """
        origin = Origin(idempotency_key, on_parent_end, self._connection.transport.reach.token)
        fields = self._with_environment(requests.fields_of(document), env)
        return read_session(self._connection.transport.send(requests.submit(fields, origin)))

    def run_flow(
        self,
        name: str,
        run: FlowRun | Mapping[str, Any] = NO_WISHES,
        idempotency_key: str | None = None,
        *,
        on_parent_end: ParentEnd | None = None,
        env: Mapping[str, str] | None = None,
    ) -> SessionView:
        """Run a flow of the catalog as a new session; the same key and run return the same one.

        Inside a doer or checker it is a child of the running session, as with `submit`.
        """
        origin = Origin(idempotency_key, on_parent_end, self._connection.transport.reach.token)
        fields = self._with_environment(requests.fields_of(run), env)
        call = requests.run_flow(name, fields, origin)
        return read_session(self._connection.transport.send(call))
