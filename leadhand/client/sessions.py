"""The operations that read sessions, and wait for them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

from leadhand.client.driving import Pause
from leadhand.client.operation import Ask, Op, Operations, Steps
from leadhand.client.requests import items, reads, reads_text, request
from leadhand.client.waiting import next_look_s
from leadhand.contract import sessions
from leadhand.errors import LeadhandError, SessionStillRuns
from leadhand.models.views.explain import ExplainView, ReceiptView
from leadhand.models.views.result import ExportView, LedgerEntry, ResultView
from leadhand.models.views.session import SessionView, TreeView
from leadhand.models.views.step import DiffsPage, Event, OutputView, StepsPage, TranscriptEntry
from leadhand.models.views.view import Page


class Sessions(Operations):
    """Reads sessions, and waits for them."""

    @Op
    def session(self, session: str) -> Ask[SessionView]:
        """Get the current view of a session by its id. Raises SessionUnknown."""
        return reads(SessionView, request(sessions.SHOW, session))

    @Op
    def sessions(
        self,
        *,
        status: str | Sequence[str] | None = None,
        kind: str | None = None,
        name: str | None = None,
        label: str | None = None,
        folder: str | None = None,
        reason: str | None = None,
        parent: str | None = None,
        archived: Literal["no", "any", "only"] | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Ask[Page[SessionView]]:
        """List a page of sessions that match all filters, newest first; by default none archived.

        `folder` means those beneath too. There are more sessions while a page has a `next`.
        """
        statuses = [status] if isinstance(status, str) else status and [*status]
        call = request(
            sessions.LIST, status=statuses, kind=kind, name=name, label=label, folder=folder,
            reason=reason, parent=parent, archived=archived, created_after=created_after,
            created_before=created_before, limit=limit, cursor=cursor)  # fmt: skip
        return reads(Page[SessionView], call)

    @Op
    def result(self, session: str) -> Ask[ResultView]:
        """Get the result of a session. Raises SessionStillRuns until it has ended."""
        return reads(ResultView, request(sessions.RESULT, session))

    @Op
    def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[StepsPage]:
        """List a page of a session's steps, sorted by address, with the runs of its loops."""
        return reads(StepsPage, request(sessions.STEPS, session, limit=limit, cursor=cursor))

    @Op
    def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[LedgerEntry]]:
        """List a page of a session's loop iterations, in the order in which they ended."""
        call = request(sessions.LEDGER, session, limit=limit, cursor=cursor)
        return reads(Page[LedgerEntry], call)

    @Op
    def transcript(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[TranscriptEntry]]:
        """List a page of the messages to and from agents and people in a session, in order."""
        call = request(sessions.TRANSCRIPT, session, limit=limit, cursor=cursor)
        return reads(Page[TranscriptEntry], call)

    @Op
    def transcript_text(self, session: str) -> Ask[str]:
        """Return the whole transcript of a session's agents and people as Markdown text."""
        return reads_text(request(sessions.TRANSCRIPT, session, format="markdown"))

    @Op
    def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Ask[Page[Event]]:
        """List a page of a session's events so far; its `next` is the `after` of the next page."""
        return reads(Page[Event], request(sessions.EVENTS, session, after=after, limit=limit))

    @Op
    def export(self, session: str) -> Ask[ExportView]:
        """Get all stored data of a session in one object: steps, ledger, events and more."""
        return reads(ExportView, request(sessions.EXPORT, session))

    @Op
    def export_text(self, session: str, part: Literal["all", "ledger"] = "all") -> Ask[str]:
        """Return all data of a session as JSON text, or only its iterations as JSON Lines."""
        return reads_text(request(sessions.EXPORT, session, part=part))

    @Op
    def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Ask[DiffsPage]:
        """Get a page of the diffs of a session's file changes, or the reason why there are none."""
        call = request(sessions.DIFFS, session, iteration=iteration, limit=limit, cursor=cursor)
        return reads(DiffsPage, call)

    @Op
    def output(
        self, session: str, *, step: str | None = None, limit: int | None = None
    ) -> Ask[list[OutputView]]:
        """Get recent output of a session's latest attempts, of one step or all, newest first."""
        return items(Page[OutputView], request(sessions.OUTPUT, session, step=step, limit=limit))

    @Op
    def receipt(self, session: str) -> Ask[ReceiptView]:
        """Get the attempts that the last stop, exit or abort interrupted, and how each ended."""
        return reads(ReceiptView, request(sessions.RECEIPT, session))

    @Op
    def explain(self, session: str) -> Ask[ExplainView]:
        """Explain why a session waits or why it ended, and what to do next."""
        return reads(ExplainView, request(sessions.EXPLAIN, session))

    @Op
    def tree(self, session: str, *, limit: int | None = None) -> Ask[TreeView]:
        """List a session and all sessions below it, at most `limit`; and why the session ended."""
        return reads(TreeView, request(sessions.TREE, session, limit=limit))

    @Op
    def drawing(
        self, session: str, *, form: Literal["svg", "text"] = "svg", width: int = 120
    ) -> Ask[str]:
        """Return a drawing of a session: an SVG document, or text with lines of at most `width`."""
        return reads_text(request(sessions.DRAWING, session, format=form, width=width))

    @Op
    def wait(self, session: str, timeout: float | None = None) -> Steps[ResultView]:
        """Wait until a session has ended and return its result. Raises WaitTimedOut.

        Meanwhile `say` is called with what blocks the session, such as a full disk, and after a
        few seconds with what it waits for.
        """
        since = time.monotonic()
        while True:
            view = yield from self.session(session)
            self.troubles.note(session, view.troubles)
            if view.ended:
                try:
                    return (yield from self.result(session))
                except SessionStillRuns:
                    pass  # it was resumed meanwhile
            if self.troubles.is_due(view, time.monotonic() - since):
                with suppress(LeadhandError):
                    self.troubles.note_waits((yield from self.explain(session)))
            yield Pause(next_look_s(session, view.status, time.monotonic() - since, timeout))
