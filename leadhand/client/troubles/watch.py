"""Reports troubles of Redis or workers, such as a full disk, while a command waits."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from leadhand.client.client import Client
from leadhand.client.troubles.report import TroubleReport
from leadhand.errors import LeadhandError
from leadhand.models.views import SessionView

#: Seconds between two polls.
EVERY_S = 5.0


@contextmanager
def reporting_troubles(
    client: Client,
    sessions: Sequence[str],
    say: Callable[[str], None],
    *,
    on_view: Callable[[SessionView], None] = lambda _: None,
) -> Iterator[None]:
    """Poll the sessions in a thread during the block, and report each new trouble once to `say`.

    If the client has a `say` of its own, that is used, so that its `wait` does not repeat it.
    `on_view` gets each session as it is every few seconds, from another thread.
    """
    report = client.troubles if client.troubles.is_heard else TroubleReport(say)
    over = threading.Event()
    arguments = (client, sessions, report, over, on_view)
    thread = threading.Thread(target=_watch, args=arguments, name="troubles", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _watch(
    client: Client,
    sessions: Sequence[str],
    report: TroubleReport,
    over: threading.Event,
    on_view: Callable[[SessionView], None],
) -> None:
    while not over.wait(EVERY_S):
        try:
            views = _views(client, sessions)
        except RuntimeError:  # the block has ended, and its caller has closed the client
            if over.is_set():
                return
            raise
        for view in views:
            if over.is_set():
                return
            report.note(view.id, view.troubles)
            on_view(view)


def _views(client: Client, sessions: Sequence[str]) -> list[SessionView]:
    try:
        return [client.session(session) for session in sessions]
    except LeadhandError:
        return []  # the caller, who waits for the session, gets the error
