"""Reports troubles of Redis or workers, such as a full disk, and waits, while a command waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from leadhand.client.client import Client
from leadhand.client.troubles.report import TroubleReport
from leadhand.errors import LeadhandError
from leadhand.models.views import SessionView

#: Seconds between two polls: who waits hears for what within 5 s.
EVERY_S = 4.0
#: Waits that the events of a session show.
IN_EVENTS = frozenset(
    {"running", "lost", "lock", "rate", "retry", "timer", "human", "child", "plan"}
)


@contextmanager
def reporting_troubles(
    client: Client,
    sessions: Sequence[str],
    say: Callable[[str], None],
    *,
    on_view: Callable[[SessionView], None] = lambda _: None,
    shown: frozenset[str] = frozenset(),
) -> Iterator[None]:
    """Poll the sessions in a thread during the block; report troubles and waits once to `say`.

    If the client has a `say` of its own, that is used, so that its `wait` does not repeat it.
    `on_view` gets each session as it is every few seconds, from another thread. `shown` are the
    words of waits that the caller shows itself, during the block.
    """
    report = client.troubles if client.troubles.is_heard else TroubleReport(say)
    before, report.shown = report.shown, shown
    over = threading.Event()
    arguments = (client, sessions, report, over, on_view)
    thread = threading.Thread(target=_watch, args=arguments, name="troubles", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        report.shown = before


def _watch(
    client: Client,
    sessions: Sequence[str],
    report: TroubleReport,
    over: threading.Event,
    on_view: Callable[[SessionView], None],
) -> None:
    since = time.monotonic()
    while not over.wait(EVERY_S):
        try:
            for view in _views(client, sessions):
                if over.is_set():
                    return
                report.note(view.id, view.troubles)
                if report.is_due(view, time.monotonic() - since):
                    with suppress(LeadhandError):
                        report.note_waits(client.explain(view.id))
                on_view(view)
        except RuntimeError:  # the block has ended, and its caller has closed the client
            if over.is_set():
                return
            raise


def _views(client: Client, sessions: Sequence[str]) -> list[SessionView]:
    try:
        return [client.session(session) for session in sessions]
    except LeadhandError:
        return []  # the caller, who waits for the session, gets the error
