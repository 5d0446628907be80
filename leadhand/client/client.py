# Generated from async_client.py by scripts/client.py: do not edit.
"""The synchronous client of Leadhand's API: a method for each operation."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Literal, Self

from leadhand.client import requests
from leadhand.client.administration import Administration
from leadhand.client.annotation import annotation
from leadhand.client.artifacts.artifact_calls import ArtifactCalls
from leadhand.client.batch.batch_calls import BatchCalls
from leadhand.client.connection import Connection
from leadhand.client.event_stream import follow
from leadhand.client.event_trail import BEGINNING
from leadhand.client.guards.guard_calls import GuardCalls
from leadhand.client.options import Options
from leadhand.client.plan_calls import PlanCalls
from leadhand.client.polling import next_look_s
from leadhand.client.requests import BulkVerb, SessionsWanted, Steer
from leadhand.client.shared_calls import SharedCalls
from leadhand.client.stacks.calls import StackCalls
from leadhand.client.steps.step_calls import StepCalls
from leadhand.client.submit.here import Here
from leadhand.client.submit.submit_calls import SubmitCalls
from leadhand.client.troubles.report import TroubleReport
from leadhand.client.work.calls import WorkCalls
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


class Client(
    SubmitCalls,
    PlanCalls,
    SharedCalls,
    StackCalls,
    GuardCalls,
    StepCalls,
    BatchCalls,
    ArtifactCalls,
    WorkCalls,
    Administration,
):
    """A client of one API: that of `url`, of LEADHAND_URL, or the user's embedded stack.

    If the connection breaks or Redis is unreachable, a call is retried for `patience_s` and
    executed once; `say` is called with a message then. `here` is the environment of the caller,
    by default that of this process.

    It is open from the start until `close` or the end of a `with`, and threads may share it.
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
        super().__init__(Connection(options))
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

    def session(self, session: str) -> SessionView:
        """Get the current view of a session by its id. Raises SessionUnknown."""
        return self._ask(requests.session(session))

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
    ) -> Page[SessionView]:
        """List a page of sessions that match all filters, newest first; by default none archived.

        `folder` means those beneath too. There are more sessions while a page has a `next`.
        """
        wanted = SessionsWanted(
            status=status, kind=kind, name=name, label=label, folder=folder, reason=reason,
            parent=parent, archived=archived, created_after=created_after,
            created_before=created_before)  # fmt: skip
        return self._ask(requests.sessions(wanted, limit, cursor))

    def bulk(
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
        return self._ask(requests.bulk(verb, wanted, dry_run, reason, force, cursor, token))

    def result(self, session: str) -> ResultView:
        """Get the result of a session. Raises SessionStillRuns until it has ended."""
        return self._ask(requests.result(session))

    def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> StepsPage:
        """List a page of a session's steps, sorted by address, with the runs of its loops."""
        return self._ask(requests.steps(session, limit, cursor))

    def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """List a page of a session's loop iterations, in the order in which they ended."""
        return self._ask(requests.ledger(session, limit, cursor))

    def events(
        self, session: str, after: str | None = None, *, output: bool = False
    ) -> Iterator[Event]:
        """Stream a session's events after a position, the stored ones first, until it has ended.

        With `output`, also stream the redacted output of running bodies: events of type `output`,
        whose fields have `fence` (the attempt), `seq`, `stream` (stdout, stderr or agent), `text`,
        `dropped` (bytes left out before it) and `missing` (parts that are deleted).
        """
        return follow(self._connection.transport, session, after=after or BEGINNING, output=output)

    def transcript(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """List a page of the messages to and from agents and people in a session, in order."""
        return self._ask(requests.transcript(session, limit, cursor))

    def transcript_text(self, session: str) -> str:
        """Return the whole transcript of a session's agents and people as Markdown text."""
        return self._ask(requests.transcript_text(session))

    def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Page[Event]:
        """List a page of a session's events so far; its `next` is the `after` of the next page."""
        return self._ask(requests.event_page(session, after, limit))

    def export(self, session: str) -> ExportView:
        """Get all stored data of a session in one object: steps, ledger, events and more."""
        return self._ask(requests.export(session))

    def export_text(self, session: str, part: Literal["all", "ledger"] = "all") -> str:
        """Return all data of a session as JSON text, or only its iterations as JSON Lines."""
        return self._ask(requests.export_text(session, part))

    def stop(self, session: str, *, seen: SessionView | None = None) -> SessionView:
        """Stop a session so that it can be resumed: no step starts, running ones are handed back.

        With `seen`, this and the methods below raise SessionChanged if the session has changed.
        """
        return self._steer(requests.control(session, "stop", seen))

    def resume(
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
        return self._steer(requests.control(session, "resume", seen, **more))

    def retry(self, session: str, step: str, *, seen: SessionView | None = None) -> SessionView:
        """Resume a stopped or failed session so that a step and all its dependents run again."""
        return self._steer(requests.control(session, "retry", seen, step=step))

    def exit(self, session: str, reason: str, *, seen: SessionView | None = None) -> SessionView:
        """End a session because its task cannot succeed; `reason` says why."""
        return self._steer(requests.control(session, "exit", seen, reason=reason))

    def abort(
        self, session: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """Begin to abort a session: running attempts are cancelled; it cannot be resumed."""
        return self._steer(requests.control(session, "abort", seen, reason=reason))

    def flows(self) -> list[FlowView]:
        """List the flows (stored workflow definitions); an invalid one is listed with its error."""
        return self._ask(requests.flows())

    def flow(self, name: str) -> FlowView:
        """Get a flow of the catalog by its name, with its definition. Raises FlowUnknown."""
        return self._ask(requests.flow(name))

    def check_flow(self, definition: Any) -> FlowCheckView:
        """Validate a flow or graph, for the workers here, without storing it; list all errors."""
        return self._ask(requests.check_flow(definition))

    def answer(
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
        return self._ask(
            requests.answer(session, text=text, address=address, choice=choice, fields=fields)
        )

    def questions(
        self, *, session: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> Page[QuestionView]:
        """List a page of the open questions to people: of all sessions, or of a session's tree.

        A page may have fewer than `limit`; there are more while it has a `next`.
        """
        return self._ask(requests.questions(session, limit, cursor))

    def inbox(
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
        return self._ask(requests.inbox(session, unread, limit, cursor))

    def take_messages(
        self, session: str, *, idempotency_key: str | None = None
    ) -> list[InboxMessage]:
        """Mark at most 100 unread messages of a session's inbox as read, and return them.

        At most 100 messages, of 64 KiB together; there may be more unless the list is empty.
        """
        return self._ask(requests.take_messages(session, idempotency_key))

    def notify_parent(
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
        return self._ask(
            requests.notify_parent(session, status, message, pr_number, idempotency_key)
        )

    def hint(self, session: str, text: str, *, idempotency_key: str | None = None) -> InboxMessage:
        """Send a hint text to a session; its next agent turn reads it. Raises MessageRefused."""
        return self._ask(requests.hint(session, text, idempotency_key))

    def annotate(
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
        return self._ask(annotation(session, title, note, archived))

    def rehome(self, session: str, place: str, *, seen: SessionView | None = None) -> SessionView:
        """Move a session and its waiting steps to another place (a worker host)."""
        return self._steer(requests.rehome(session, place, seen))

    def delete(
        self, session: str, *, force: bool = False, seen: SessionView | None = None
    ) -> SessionView | None:
        """Delete an ended session; with `force`, abort one that runs and delete it at its end.

        Returns None once it is deleted, until then the session that is being aborted. Without
        `force`, raises SessionStillRuns for one that has not ended.
        """
        return self._ask(requests.delete(session, force=force, seen=seen))

    def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> DiffsPage:
        """Get a page of the diffs of a session's file changes, or the reason why there are none."""
        return self._ask(requests.diffs(session, iteration, limit, cursor))

    def output(
        self, session: str, *, step: str | None = None, limit: int | None = None
    ) -> list[OutputView]:
        """Get recent output of a session's latest attempts, of one step or all, newest first."""
        return (self._ask(requests.output(session, step, limit))).items

    def receipt(self, session: str) -> ReceiptView:
        """Get the attempts that the last stop, exit or abort interrupted, and how each ended."""
        return self._ask(requests.receipt(session))

    def explain(self, session: str) -> ExplainView:
        """Explain why a session waits or why it ended, and what to do next."""
        return self._ask(requests.explain(session))

    def tree(self, session: str, *, limit: int | None = None) -> TreeView:
        """List a session and all sessions below it, at most `limit`; and why the session ended."""
        return self._ask(requests.tree(session, limit))

    def ping(self) -> None:
        """Check that the API and its Redis respond, with retries. Raises ApiAway or Unavailable."""
        self._ask(requests.ping())

    def wait(self, session: str, timeout: float | None = None) -> ResultView:
        """Wait until a session has ended and return its result. Raises WaitTimedOut.

        Meanwhile `say` is called with what blocks the session, such as a full disk, and after a
        few seconds with what it waits for.
        """
        since = time.monotonic()
        while True:
            view = self.session(session)
            self.troubles.note(session, view.troubles)
            if view.ended:
                try:
                    return self.result(session)
                except SessionStillRuns:
                    pass  # it was resumed meanwhile
            if self.troubles.is_due(view, time.monotonic() - since):
                with suppress(LeadhandError):
                    self.troubles.note_waits(self.explain(session))
            pause_s = next_look_s(session, view.status, time.monotonic() - since, timeout)
            time.sleep(pause_s)

    def close(self) -> None:
        """Close the connections. An embedded stack stops once no other client needs it."""
        self._connection.close()

    def __enter__(self) -> Self:
        self._connection.open()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def _steer(self, steer: Steer) -> SessionView:
        answer = self._connection.transport.send(steer.call)
        try:
            return requests.read_session(answer)
        except (ControlRefused, SessionChanged):
            if answer.repeated:
                view = self.session(steer.session)
                if steer.is_done(view):
                    return view
            raise
