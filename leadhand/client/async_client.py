"""The asynchronous client of Leadhand's API: a method for each operation."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from leadhand.client import requests
from leadhand.client.annotation import annotation
from leadhand.client.artifacts.async_artifact_calls import AsyncArtifactCalls
from leadhand.client.async_administration import AsyncAdministration
from leadhand.client.async_connection import AsyncConnection
from leadhand.client.async_event_stream import follow
from leadhand.client.async_plan_calls import AsyncPlanCalls
from leadhand.client.async_shared_calls import AsyncSharedCalls
from leadhand.client.batch.async_batch_calls import AsyncBatchCalls
from leadhand.client.event_trail import BEGINNING
from leadhand.client.guards.async_guard_calls import AsyncGuardCalls
from leadhand.client.options import Options
from leadhand.client.polling import next_look_s
from leadhand.client.requests import BulkVerb, SessionsWanted, Steer
from leadhand.client.stacks.async_calls import AsyncStackCalls
from leadhand.client.steps.async_step_calls import AsyncStepCalls
from leadhand.client.submit.async_submit_calls import AsyncSubmitCalls
from leadhand.client.submit.here import Here
from leadhand.client.troubles.report import TroubleReport
from leadhand.client.work.async_calls import AsyncWorkCalls
from leadhand.errors import ControlRefused, LeadhandError, SessionChanged, SessionStillRuns
from leadhand.models.documents import Budget
from leadhand.models.views import (
    BulkView,
    DiffsPage,
    Event,
    ExplainView,
    ExportView,
    FlowCheckView,
    FlowView,
    InboxMessage,
    LedgerEntry,
    OutputView,
    Page,
    QuestionView,
    ReceiptView,
    ResultView,
    SessionView,
    StepsPage,
    TranscriptEntry,
    TreeView,
)


class AsyncClient(
    AsyncSubmitCalls,
    AsyncPlanCalls,
    AsyncSharedCalls,
    AsyncStackCalls,
    AsyncGuardCalls,
    AsyncStepCalls,
    AsyncBatchCalls,
    AsyncArtifactCalls,
    AsyncWorkCalls,
    AsyncAdministration,
):
    """A client of one API: that of `url`, of LEADHAND_URL, or the user's embedded stack.

    If the connection breaks or Redis is unreachable, a call is retried for `patience_s` and
    executed once; `say` is called with a message then. `here` is the environment of the caller,
    by default that of this process.

    It is open within `async with`, and belongs to one event loop.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 30.0,
        say: Callable[[str], None] | None = None,
        here: Here | None = None,
    ) -> None:
        options = Options(url, token, timeout_s, patience_s, say, here)
        super().__init__(AsyncConnection(options))
        #: What keeps the sessions waiting that are waited for; it speaks by `say`.
        self.troubles = TroubleReport(say)

    @property
    def url(self) -> str:
        """Return the URL of the API."""
        return self._connection.transport.reach.url

    @property
    def here(self) -> Here:
        """The caller's environment (variables, Python, folder), of which sessions get a part."""
        return self._connection.transport.reach.here

    async def session(self, session: str) -> SessionView:
        """Get the current view of a session by its id. Raises SessionUnknown."""
        return await self._ask(requests.session(session))

    async def sessions(
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
    ) -> Page[SessionView]:
        """List a page of sessions that match all filters, newest first; by default none archived.

        `folder` means those beneath too. There are more sessions while a page has a `next`.
        """
        wanted = SessionsWanted(
            status=status, kind=kind, name=name, label=label, folder=folder, reason=reason,
            parent=parent, archived=archived, created_after=created_after,
            created_before=created_before)  # fmt: skip
        return await self._ask(requests.sessions(wanted, limit, cursor))

    async def bulk(
        self,
        verb: BulkVerb,
        wanted: SessionsWanted,
        *,
        dry_run: bool = True,
        reason: str = "",
        force: bool = False,
        cursor: str | None = None,
        token: str | None = None,
    ) -> BulkView:
        """Apply a verb (stop, delete ...) to all matching sessions; by default only count them.

        A call with its `token` leaves out what changed since; one with a `next` is not the last.
        """
        return await self._ask(requests.bulk(verb, wanted, dry_run, reason, force, cursor, token))

    async def result(self, session: str) -> ResultView:
        """Get the result of a session. Raises SessionStillRuns until it has ended."""
        return await self._ask(requests.result(session))

    async def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> StepsPage:
        """List a page of a session's steps, sorted by address, with the runs of its loops."""
        return await self._ask(requests.steps(session, limit, cursor))

    async def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """List a page of a session's loop iterations, in the order in which they ended."""
        return await self._ask(requests.ledger(session, limit, cursor))

    def events(
        self, session: str, after: str | None = None, *, output: bool = False
    ) -> AsyncIterator[Event]:
        """Stream a session's events after a position, the stored ones first, until it has ended.

        With `output`, also stream the redacted output of running bodies: events of type `output`,
        whose fields have `fence` (the attempt), `seq`, `stream` (stdout, stderr or agent), `text`,
        `dropped` (bytes left out before it) and `missing` (parts that are deleted).
        """
        return follow(self._connection.transport, session, after=after or BEGINNING, output=output)

    async def transcript(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """List a page of the messages to and from agents and people in a session, in order."""
        return await self._ask(requests.transcript(session, limit, cursor))

    async def transcript_text(self, session: str) -> str:
        """Return the whole transcript of a session's agents and people as Markdown text."""
        return await self._ask(requests.transcript_text(session))

    async def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Page[Event]:
        """List a page of a session's events so far; its `next` is the `after` of the next page."""
        return await self._ask(requests.event_page(session, after, limit))

    async def export(self, session: str) -> ExportView:
        """Get all stored data of a session in one object: steps, ledger, events and more."""
        return await self._ask(requests.export(session))

    async def export_text(self, session: str, part: Literal["all", "ledger"] = "all") -> str:
        """Return all data of a session as JSON text, or only its iterations as JSON Lines."""
        return await self._ask(requests.export_text(session, part))

    async def stop(self, session: str, *, seen: SessionView | None = None) -> SessionView:
        """Stop a session so that it can be resumed: no step starts, running ones are handed back.

        With `seen`, this and the methods below raise SessionChanged if the session has changed.
        """
        return await self._steer(requests.control(session, "stop", seen))

    async def resume(
        self,
        session: str,
        max_iterations: int | None = None,
        *,
        after: str | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        as_: Literal["old", "new"] | None = None,
        accept_protected: bool = False,
        seen: SessionView | None = None,
    ) -> SessionView:
        """Resume a stopped or failed session; a limit that was reached must be raised.

        A flow runs the version that it was started with, or with `as_="new"` that of its file now.

        `after` names the last point that counts as done (an address, a label, or positions from
        0 such as `1[2]/0`): the steps after it run again. `budget` names those of its limits
        that are to hold from now on. With `accept_protected` changed protected files are taken as
        they are; otherwise what a doer has changed is put back.
        """
        more = requests.resume_body(max_iterations, budget, as_, after, accept_protected)
        return await self._steer(requests.control(session, "resume", seen, **more))

    async def retry(
        self, session: str, step: str, *, seen: SessionView | None = None
    ) -> SessionView:
        """Resume a stopped or failed session so that a step and all its dependents run again."""
        return await self._steer(requests.control(session, "retry", seen, step=step))

    async def exit(
        self, session: str, reason: str, *, seen: SessionView | None = None
    ) -> SessionView:
        """End a session because its task cannot succeed; `reason` says why."""
        return await self._steer(requests.control(session, "exit", seen, reason=reason))

    async def abort(
        self, session: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """Begin to abort a session: running attempts are cancelled; it cannot be resumed."""
        return await self._steer(requests.control(session, "abort", seen, reason=reason))

    async def flows(self) -> list[FlowView]:
        """List the flows (stored workflow definitions); an invalid one is listed with its error."""
        return await self._ask(requests.flows())

    async def flow(self, name: str) -> FlowView:
        """Get a flow of the catalog by its name, with its definition. Raises FlowUnknown."""
        return await self._ask(requests.flow(name))

    async def check_flow(self, definition: Any) -> FlowCheckView:
        """Validate a flow or graph, for the workers here, without storing it; list all errors."""
        return await self._ask(requests.check_flow(definition))

    async def answer(
        self,
        session: str,
        text: str | None = None,
        address: str | None = None,
        *,
        choice: str | None = None,
        fields: Mapping[str, Any] | None = None,
    ) -> SessionView:
        """Answer a session's question to a person: with a text, a choice, or the form's fields.

        Raises AnswerUnwanted, or RequestInvalid for an answer that does not fit the question.
        """
        return await self._ask(
            requests.answer(session, text=text, address=address, choice=choice, fields=fields)
        )

    async def questions(
        self, *, session: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[QuestionView]:
        """List a page of the open questions to people: of all sessions, or of a session's tree.

        A page may have fewer than `limit`; there are more while it has a `next`.
        """
        return await self._ask(requests.questions(session, limit, cursor))

    async def inbox(
        self,
        session: str,
        *,
        unread: bool = False,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[InboxMessage]:
        """List a page of the messages in a session's inbox, oldest first; marks none as read.

        With `unread` only those that neither a turn nor another reader has acknowledged.
        """
        return await self._ask(requests.inbox(session, unread, limit, cursor))

    async def take_messages(
        self, session: str, *, idempotency_key: str | None = None
    ) -> list[InboxMessage]:
        """Mark at most 100 unread messages of a session's inbox as read, and return them.

        At most 100 messages, of 64 KiB together; there may be more unless the list is empty.
        """
        return await self._ask(requests.take_messages(session, idempotency_key))

    async def notify_parent(
        self,
        session: str,
        status: Literal["success", "failure"],
        message: str,
        *,
        pr_number: int | None = None,
        idempotency_key: str | None = None,
    ) -> InboxMessage:
        """Send a message from a session to its parent's inbox; a failure calls for a person.

        It does not end the session. Raises MessageRefused without a parent that can read it.
        """
        return await self._ask(
            requests.notify_parent(session, status, message, pr_number, idempotency_key)
        )

    async def hint(
        self, session: str, text: str, *, idempotency_key: str | None = None
    ) -> InboxMessage:
        """Send a hint text to a session; its next agent turn reads it. Raises MessageRefused."""
        return await self._ask(requests.hint(session, text, idempotency_key))

    async def annotate(
        self,
        session: str,
        *,
        title: str | None = None,
        note: str | None = None,
        archived: bool | None = None,
    ) -> SessionView:
        """Set a session's title and note, and whether lists hide it; None changes nothing.

        Raises ControlRefused for hiding one that is at work.
        """
        return await self._ask(annotation(session, title, note, archived))

    async def rehome(
        self, session: str, place: str, *, seen: SessionView | None = None
    ) -> SessionView:
        """Move a session and its waiting steps to another place (a worker host)."""
        return await self._steer(requests.rehome(session, place, seen))

    async def delete(
        self, session: str, *, force: bool = False, seen: SessionView | None = None
    ) -> SessionView | None:
        """Delete an ended session; with `force`, abort one that runs and delete it at its end.

        Returns None once it is deleted, until then the session that is being aborted. Without
        `force`, raises SessionStillRuns for one that has not ended.
        """
        return await self._ask(requests.delete(session, force=force, seen=seen))

    async def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DiffsPage:
        """Get a page of the diffs of a session's file changes, or the reason why there are none."""
        return await self._ask(requests.diffs(session, iteration, limit, cursor))

    async def output(
        self, session: str, *, step: str | None = None, limit: int | None = None
    ) -> list[OutputView]:
        """Get recent output of a session's latest attempts, of one step or all, newest first."""
        return (await self._ask(requests.output(session, step, limit))).items

    async def receipt(self, session: str) -> ReceiptView:
        """Get the attempts that the last stop, exit or abort interrupted, and how each ended."""
        return await self._ask(requests.receipt(session))

    async def explain(self, session: str) -> ExplainView:
        """Explain why a session waits or why it ended, and what to do next."""
        return await self._ask(requests.explain(session))

    async def tree(self, session: str, *, limit: int | None = None) -> TreeView:
        """List a session and all sessions below it, at most `limit`; and why the session ended."""
        return await self._ask(requests.tree(session, limit))

    async def ping(self) -> None:
        """Check that the API and its Redis respond, with retries. Raises ApiAway or Unavailable."""
        await self._ask(requests.ping())

    async def wait(self, session: str, timeout: float | None = None) -> ResultView:
        """Wait until a session has ended and return its result. Raises WaitTimedOut.

        Meanwhile `say` is called with what blocks the session, such as a full disk, and after a
        few seconds with what it waits for.
        """
        since = time.monotonic()
        while True:
            view = await self.session(session)
            self.troubles.note(session, view.troubles)
            if view.ended:
                try:
                    return await self.result(session)
                except SessionStillRuns:
                    pass  # it was resumed meanwhile
            if self.troubles.is_due(view, time.monotonic() - since):
                with suppress(LeadhandError):
                    self.troubles.note_waits(await self.explain(session))
            pause_s = next_look_s(session, view.status, time.monotonic() - since, timeout)
            await asyncio.sleep(pause_s)

    async def _close(self) -> None:
        """Close the connections. An embedded stack stops once no other client needs it."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        await self._connection.open()
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._close()

    async def _steer(self, steer: Steer) -> SessionView:
        answer = await self._connection.transport.send(steer.call)
        try:
            return requests.read_session(answer)
        except (ControlRefused, SessionChanged):
            if answer.repeated:
                view = await self.session(steer.session)
                if steer.is_done(view):
                    return view
            raise
