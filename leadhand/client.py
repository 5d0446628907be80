"""Speaks to Leadhand's API from Python."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from leadhand import asks
from leadhand.asks import Ask, BulkVerb, Document, SessionsWanted, Steer
from leadhand.audits import joined
from leadhand.documents import Budget, Webhook
from leadhand.errors import ControlRefused, SessionChanged, SessionStillRuns, WaitTimedOut
from leadhand.flow_documents import NO_WISHES, FlowRun
from leadhand.following import BEGINNING, follow
from leadhand.limits import LimitView
from leadhand.settings import ClientSettings
from leadhand.tokens import NewToken, Quotas, TokenView
from leadhand.transport import Reach, Transport
from leadhand.views import (
    AgentView,
    BulkView,
    DiffView,
    Event,
    ExplainView,
    ExportView,
    FleetView,
    FlowCheckView,
    FlowView,
    FsckView,
    LedgerEntry,
    Page,
    QueueView,
    ReceiptView,
    ResultView,
    SessionView,
    StepView,
    ToolView,
    TranscriptEntry,
    WorkerView,
)

T = TypeVar("T")

_SOONEST_LOOK_S = 0.05
_LATEST_LOOK_S = 1.0


class Client:
    """One API, by its address, or by the environment, or the current folder's embedded stack.

    Every call bears a broken connection and a Redis that is away for a while: it is tried again
    for `patience_s`, and carried out once; `say` hears of it. A client may be shared between
    threads.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = 30.0,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self._held = ExitStack()
        self.url, token = address(url, token, self._held)
        reach = Reach(self.url, token, timeout_s, patience_s, say)
        self._transport = self._held.enter_context(closing(Transport(reach)))

    def submit(self, document: Document, idempotency_key: str | None = None) -> SessionView:
        """Start a session. The same key with the same document is the same session."""
        return self._ask(asks.submit(document, idempotency_key))

    def session(self, session: str) -> SessionView:
        """One session as it is now. Raises SessionUnknown."""
        return self._ask(asks.session(session))

    def sessions(
        self,
        *,
        status: str | Sequence[str] | None = None,
        kind: str | None = None,
        name: str | None = None,
        label: str | None = None,
        reason: str | None = None,
        parent: str | None = None,
        created_after: str | None = None,
        created_before: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[SessionView]:
        """Some of the sessions that are all of this, the newest first.

        A page may hold fewer than `limit`; there is more as long as it has a `next`.
        """
        wanted = SessionsWanted(
            status=status, kind=kind, name=name, label=label, reason=reason, parent=parent,
            created_after=created_after, created_before=created_before,
        )  # fmt: skip
        return self._ask(asks.sessions(wanted, limit, cursor))

    def bulk(
        self,
        verb: BulkVerb,
        wanted: SessionsWanted,
        *,
        dry_run: bool = True,
        reason: str = "",
        force: bool = False,
        cursor: str | None = None,
    ) -> BulkView:
        """Do one thing to all sessions that are meant; a dry run counts them and does nothing.

        There are more than one call takes on where its view has a `next`: call again with it.
        """
        return self._ask(
            asks.bulk(verb, wanted, dry_run=dry_run, reason=reason, force=force, cursor=cursor)
        )

    def result(self, session: str) -> ResultView:
        """How a session ended. Raises SessionStillRuns while it has not."""
        return self._ask(asks.result(session))

    def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[StepView]:
        """Some of a session's steps."""
        return self._ask(asks.steps(session, limit, cursor))

    def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """Some of a session's iterations, in the order in which they ended."""
        return self._ask(asks.ledger(session, limit, cursor))

    def events(self, session: str, after: str | None = None) -> Iterator[Event]:
        """Each event after the one named, old ones first, until the session has ended."""
        return follow(self._transport, session, after=after or BEGINNING)

    def transcript(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """Some of what agents and people said in a session, in order."""
        return self._ask(asks.transcript(session, limit, cursor))

    def transcript_text(self, session: str) -> str:
        """All of it as Markdown."""
        return self._ask(asks.transcript_text(session))

    def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Page[Event]:
        """Some of the events that are there already; `next` is the `after` of the next page."""
        return self._ask(asks.event_page(session, after, limit))

    def export(self, session: str) -> ExportView:
        """Everything that is kept of a session."""
        return self._ask(asks.export(session))

    def export_text(self, session: str, part: Literal["all", "ledger"] = "all") -> str:
        """The same as JSON, or the ledger alone as JSON Lines."""
        return self._ask(asks.export_text(session, part))

    def stop(self, session: str, *, seen: SessionView | None = None) -> SessionView:
        """Let nothing new start, and hand back what runs; resume goes on from there.

        Raises SessionChanged where it is no longer as it was `seen`, here and below.
        """
        return self._steer(asks.control(session, "stop", seen))

    def resume(
        self,
        session: str,
        max_iterations: int | None = None,
        *,
        after: str | None = None,
        budget: Budget | Mapping[str, float] | None = None,
        as_: Literal["old", "new"] | None = None,
        seen: SessionView | None = None,
    ) -> SessionView:
        """Go on with a stopped or failed session; a passed limit must be raised.

        A flow goes on by what it was started with, or `as_` new by what its file says now.

        `after` names the last point that counts as done (an address, a label, or positions from
        0 such as `1[2]/0`): what comes after it runs anew. `budget` names those of its limits
        that are to hold from now on.
        """
        more = asks.resumed(max_iterations, budget, as_, after)
        return self._steer(asks.control(session, "resume", seen, **more))

    def exit(self, session: str, reason: str, *, seen: SessionView | None = None) -> SessionView:
        """End a session by intent, with the reason."""
        return self._steer(asks.control(session, "exit", seen, reason=reason))

    def abort(
        self, session: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """End a session by force."""
        return self._steer(asks.control(session, "abort", seen, reason=reason))

    def flows(self) -> list[FlowView]:
        """The flows of the catalog, the broken ones with what is wrong with them."""
        return self._ask(asks.flows())

    def flow(self, name: str) -> FlowView:
        """One of them, with what its file says. Raises FlowUnknown."""
        return self._ask(asks.flow(name))

    def run_flow(
        self,
        name: str,
        run: FlowRun | Mapping[str, Any] = NO_WISHES,
        idempotency_key: str | None = None,
    ) -> SessionView:
        """Run a flow of the catalog. The same key with the same wishes is the same session."""
        return self._ask(asks.run_flow(name, run, idempotency_key))

    def check_flow(self, definition: Any) -> FlowCheckView:
        """Whether a flow that is being written could be run, and all that is wrong with it."""
        return self._ask(asks.check_flow(definition))

    def answer(self, session: str, text: str, address: str | None = None) -> SessionView:
        """Answer what a session asks of a person. Raises AnswerUnwanted."""
        return self._ask(asks.answer(session, text, address))

    def rehome(self, session: str, place: str, *, seen: SessionView | None = None) -> SessionView:
        """Bind a session to another place, with all that waits in it."""
        return self._steer(asks.rehome(session, place, seen))

    def delete(
        self, session: str, *, force: bool = False, seen: SessionView | None = None
    ) -> SessionView | None:
        """Forget a session; None once it is gone. Raises SessionStillRuns while it has not ended.

        By force one that runs is aborted first; its view says that it is still to go.
        """
        return self._ask(asks.delete(session, force=force, seen=seen))

    def workers(self) -> list[WorkerView]:
        """The worker hosts that told of themselves lately, each with what it does now."""
        return self._ask(asks.workers())

    def agents(self) -> list[AgentView]:
        """The agents that the workers know, with where each can be used."""
        return self._ask(asks.agents())

    def tools(self) -> list[ToolView]:
        """The tools that the workers have, with where each can be used."""
        return self._ask(asks.tools())

    def queues(self) -> list[QueueView]:
        """Every queue, with what stands in it and who takes from it."""
        return self._ask(asks.queues())

    def fleet(self) -> FleetView:
        """The whole fleet at one glance."""
        return self._ask(asks.fleet())

    def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DiffView]:
        """What each doer changed in its folder, in order; of one iteration, or of all."""
        return self._ask(asks.diffs(session, iteration, limit, cursor))

    def receipt(self, session: str) -> ReceiptView:
        """What the last stop, exit or abort of a session met, and what became of it."""
        return self._ask(asks.receipt(session))

    def explain(self, session: str) -> ExplainView:
        """Why a session waits or why it ended, and what to do next."""
        return self._ask(asks.explain(session))

    def fsck(self, *, repair: bool = False) -> FsckView:
        """Cross-check all that Redis and the broker hold, and mend it if asked."""
        found: FsckView | None = None
        while found is None or found.next is not None:
            cursor = found.next if found is not None else None
            found = joined(found, self._ask(asks.fsck(repair=repair, cursor=cursor)))
        return found

    def limits(self) -> list[LimitView]:
        """All limits, by key."""
        return self._ask(asks.all_limits())

    def limit(self, key: str) -> LimitView:
        """The limit of one key. Raises LimitUnknown."""
        return self._ask(asks.limit(key))

    def set_limit(
        self,
        key: str,
        *,
        concurrency: int | None = None,
        per_minute: float | None = None,
        seen: LimitView | None = None,
    ) -> LimitView:
        """Let at most so many attempts with a key run, or so many begin in a minute.

        Raises LimitChanged where it is no longer as it was `seen`, here and below.
        """
        return self._ask(asks.set_limit(key, concurrency, per_minute, seen))

    def remove_limit(self, key: str, *, seen: LimitView | None = None) -> None:
        """Let as many attempts with a key run as there are workers for."""
        self._ask(asks.remove_limit(key, seen))

    def tokens(self) -> list[TokenView]:
        """All tokens but the API's own, the newest first."""
        return self._ask(asks.all_tokens())

    def create_token(
        self,
        name: str,
        scopes: Sequence[str],
        *,
        expires_s: int | None = None,
        quotas: Quotas | None = None,
        webhook: Webhook | Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> NewToken:
        """Make a token; its text is in the answer and nowhere else.

        The webhook is told of its sessions, unless their documents name one themselves.
        The same key with the same arguments is the same token, as long as that is not revoked.
        """
        return self._ask(
            asks.create_token(name, scopes, expires_s, quotas, webhook, idempotency_key)
        )

    def revoke_token(self, token: str) -> None:
        """Let nobody in with a token any more, by its id. Raises TokenUnknown."""
        self._ask(asks.revoke_token(token))

    def ping(self) -> None:
        """Return once the API and its Redis answer. Raises ApiAway or Unavailable."""
        self._ask(asks.ping())

    def wait(self, session: str, timeout: float | None = None) -> ResultView:
        """How the session ended, once it has. Raises WaitTimedOut after so many seconds."""
        since = time.monotonic()
        while True:
            view = self.session(session)
            if view.ended:
                try:
                    return self.result(session)
                except SessionStillRuns:
                    pass  # Somebody has resumed it in between.
            time.sleep(next_look_s(session, view.status, time.monotonic() - since, timeout))

    def close(self) -> None:
        """Close the connections, and let an embedded stack go that nobody else needs."""
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, ask: Ask[T]) -> T:
        return ask.read(self._transport.send(ask.call))

    def _steer(self, steer: Steer) -> SessionView:
        answer = self._transport.send(steer.call)
        try:
            return asks.read_session(answer)
        except (ControlRefused, SessionChanged):
            if answer.repeated:
                view = self.session(steer.session)
                if steer.is_done(view):
                    return view
            raise


def address(url: str | None, token: str | None, held: ExitStack) -> tuple[str, str]:
    """Where the API is and what opens it: as given, else by the environment, else embedded.

    An embedded stack stays for as long as it is held.
    """
    settings = ClientSettings.from_env()
    url = url or settings.url
    if url is not None:
        return url, token or settings.token or ""
    from leadhand.embedded import ensure  # only those who need it pay for it

    connection = held.enter_context(ensure())
    return connection.url, token or connection.token


def next_look_s(session: str, status: str, waited_s: float, timeout_s: float | None) -> float:
    """When to look again: soon at first, then once a second, and never past the time-out.

    Raises WaitTimedOut once there is no time left.
    """
    if timeout_s is not None and waited_s >= timeout_s:
        raise WaitTimedOut(session, status, timeout_s)
    pause_s = min(max(waited_s / 10, _SOONEST_LOOK_S), _LATEST_LOOK_S)
    return pause_s if timeout_s is None else min(pause_s, max(timeout_s - waited_s, 0.0))
