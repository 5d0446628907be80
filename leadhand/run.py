"""Waits for a session: shows its events, and stops it when the user presses Ctrl-C."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Protocol

from leadhand.client.client import Client
from leadhand.client.waiting import IN_EVENTS, reporting_troubles
from leadhand.errors import ControlRefused
from leadhand.flows.documents import AnyDocument
from leadhand.models.documents import WorkflowDocument
from leadhand.models.views.result import ResultView
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import Event
from leadhand.settings import ClientSettings

#: Runs a workflow in place of `Workflow.run`; the command line sets it while it runs a workflow
#: file, which calls `run()` itself.
CONDUCTOR: ContextVar[Callable[[WorkflowDocument], ResultView] | None] = ContextVar(
    "CONDUCTOR", default=None
)


class Audience(Protocol):
    """Receives the events of a session."""

    #: Whether events of type `output`, which carry the output of bodies, are wanted too.
    wants_output: bool

    def start(self, session: SessionView) -> None:
        """Show that the session has started; called once, before the first event."""

    def show(self, event: Event) -> None:
        """Show one event of the session."""

    def update(self, session: SessionView) -> None:
        """Show the present session; called every few seconds from another thread."""

    def close(self) -> None:
        """Stop showing events: the session has ended, or the user has left."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C was pressed, and the session was stopped or aborted."""

    def __init__(self, result: ResultView) -> None:
        super().__init__(result)
        self.result = result

    def __str__(self) -> str:
        return _farewell(self.result)


def run_to_end(
    client: Client,
    document: AnyDocument,
    *,
    say: Callable[[str], None],
    audience: Audience | None = None,
) -> ResultView:
    """Submits a document, waits for its session and returns the result; Ctrl-C raises Interrupted.

    It stops the session first.
    """
    return wait_for_session(client, client.submit(document), say=say, audience=audience)


def wait_for_session(
    client: Client,
    session: SessionView,
    *,
    say: Callable[[str], None],
    audience: Audience | None = None,
    shown: frozenset[str] = frozenset(),
) -> ResultView:
    """Wait for a session and return its result; Ctrl-C stops it and raises Interrupted.

    `shown` are the words of waits that the caller shows, beside those that an audience shows.
    """
    on_view = audience.update if audience is not None else lambda _: None
    shown |= IN_EVENTS if audience is not None else frozenset()
    try:
        with reporting_troubles(client, [session.id], say, on_view=on_view, shown=shown):
            if audience is not None:
                _show_events(client, session, audience)
            return client.wait(session.id)
    except KeyboardInterrupt:
        result = halt(client, session.id, say=say)
        _end_without_traceback()
        raise Interrupted(result) from None


def _end_without_traceback() -> None:
    """Let a script that does not catch Interrupted end without a traceback: `halt` said it all.

    A hook of the user's own is kept.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_unless_interrupted


def _show_unless_interrupted(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    if not isinstance(error, Interrupted):
        sys.__excepthook__(kind, error, trace)


def halt(client: Client, session: str, *, say: Callable[[str], None]) -> ResultView:
    """Stop a session, wait for its end and report how to resume it; another Ctrl-C aborts it."""
    try:
        say(f"stopping session {session}; press Ctrl-C again to abort it")
        with suppress(ControlRefused):  # it is ending already
            client.stop(session)
        result = client.wait(session)
    except KeyboardInterrupt:
        say(f"aborting session {session}")
        with suppress(ControlRefused):
            client.abort(session)
        result = client.wait(session)
    say(_farewell(result))
    return result


def print_message(text: str) -> None:
    """Print a text to standard error, after `leadhand: `."""
    sys.stderr.write(f"leadhand: {text}\n")
    sys.stderr.flush()


def _show_events(client: Client, session: SessionView, audience: Audience) -> None:
    try:
        audience.start(session)
        for event in client.events(session.id, output=audience.wants_output):
            audience.show(event)
    finally:
        audience.close()


def _farewell(result: ResultView) -> str:
    text = f"session {result.session_id} is {result.status}"
    if result.status in ("stopped", "failed"):
        return f"{text}; continue with: leadhand resume {result.session_id}"
    return text


def working_folder(cwd: str | Path | None) -> str:
    """Returns the absolute path of a folder, by default the current one; checks that it exists.

    Raises ValueError if it does not exist. With LEADHAND_URL that is not checked: the folder is on
    a worker's host.
    """
    folder = Path(cwd or ".").absolute()
    if ClientSettings.from_env().url is None and folder.is_file():
        raise ValueError(f"cwd is {str(cwd)!r}: it is a file; name a folder")
    if ClientSettings.from_env().url is None and not folder.is_dir():
        raise ValueError(f"cwd is {str(cwd)!r}: there is no such folder; create it or name another")
    return str(folder)
