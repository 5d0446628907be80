"""Attends a session to its end: tells of its events, and stops it when its user presses Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from typing import Protocol

from leadhand.any_document import AnyDocument
from leadhand.client import Client
from leadhand.documents import WorkflowDocument
from leadhand.errors import ControlRefused
from leadhand.views import Event, ResultView, SessionView

#: Runs a workflow to its end; the command line puts one of its own here around a workflow file,
#: which calls `run()` itself and so cannot be handed one.
CONDUCTOR: ContextVar[Callable[[WorkflowDocument], ResultView] | None] = ContextVar(
    "CONDUCTOR", default=None
)


class Audience(Protocol):
    """Who is told how a session goes."""

    def began(self, session: SessionView) -> None:
        """The session is there."""

    def saw(self, event: Event) -> None:
        """Something happened in it."""

    def left(self) -> None:
        """Nobody attends it any more; it may have ended or not."""


class Interrupted(KeyboardInterrupt):
    """The user pressed Ctrl-C, and the session was stopped or aborted."""

    def __init__(self, result: ResultView) -> None:
        super().__init__(result)
        self.result = result


def run_to_end(
    client: Client,
    document: AnyDocument,
    *,
    say: Callable[[str], None],
    audience: Audience | None = None,
) -> ResultView:
    """Submit a document and attend its session. Raises Interrupted."""
    return attend(client, client.submit(document), say=say, audience=audience)


def attend(
    client: Client,
    session: SessionView,
    *,
    say: Callable[[str], None],
    audience: Audience | None = None,
) -> ResultView:
    """Wait for a session's end. Raises Interrupted once Ctrl-C has stopped or aborted it."""
    try:
        if audience is not None:
            _tell(client, session, audience)
        return client.wait(session.id)
    except KeyboardInterrupt:
        raise Interrupted(halt(client, session.id, say=say)) from None


def halt(client: Client, session: str, *, say: Callable[[str], None]) -> ResultView:
    """Stop a session and say how to go on with it; a Ctrl-C meanwhile aborts it."""
    try:
        say(f"stopping session {session}; press Ctrl-C again to abort it")
        with suppress(ControlRefused):  # It ends already, by itself or by somebody else.
            client.stop(session)
        result = client.wait(session)
    except KeyboardInterrupt:
        say(f"aborting session {session}")
        with suppress(ControlRefused):
            client.abort(session)
        result = client.wait(session)
    say(_farewell(result))
    return result


def aloud(text: str) -> None:
    """Tell the user on standard error, which is his even where standard output is a pipe."""
    sys.stderr.write(f"leadhand: {text}\n")
    sys.stderr.flush()


def _tell(client: Client, session: SessionView, audience: Audience) -> None:
    try:
        audience.began(session)
        for event in client.events(session.id):
            audience.saw(event)
    finally:
        audience.left()


def _farewell(result: ResultView) -> str:
    text = f"session {result.session_id} is {result.status}"
    if result.status in ("stopped", "failed"):
        return f"{text}; go on with: leadhand resume {result.session_id}"
    return text
