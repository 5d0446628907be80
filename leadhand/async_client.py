"""Speaks to Leadhand's API from Python's asyncio: the client's calls, each to be awaited."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from leadhand import asks
from leadhand.asks import Ask, BulkVerb, Document, SessionsWanted, Steer
from leadhand.async_transport import AsyncTransport
from leadhand.audits import joined
from leadhand.client import address, next_look_s
from leadhand.documents import Budget, Webhook
from leadhand.errors import ControlRefused, SessionChanged, SessionStillRuns
from leadhand.flow_documents import NO_WISHES, FlowRun
from leadhand.following import BEGINNING, follow_async
from leadhand.limits import LimitView
from leadhand.tokens import NewToken, Quotas, TokenView
from leadhand.transport import Reach
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


class AsyncClient:
    """One API, as Client finds it, for one event loop; it is open within `async with`.

    Every call bears a broken connection and a Redis that is away for a while, as Client's do.
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
        self._given = (url, token)
        self._manner = (timeout_s, patience_s, say)

    async def __aenter__(self) -> Self:
        # An embedded stack takes its time to start.
        self.url, token = await asyncio.to_thread(address, *self._given, self._held)
        self._transport = AsyncTransport(Reach(self.url, token, *self._manner))
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self._transport.close()
        await asyncio.to_thread(self._held.close)

    async def submit(self, document: Document, idempotency_key: str | None = None) -> SessionView:
        """Start a session. The same key with the same document is the same session."""
        return await self._ask(asks.submit(document, idempotency_key))

    async def session(self, session: str) -> SessionView:
        """One session as it is now. Raises SessionUnknown."""
        return await self._ask(asks.session(session))

    async def sessions(
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
        return await self._ask(asks.sessions(wanted, limit, cursor))

    async def bulk(
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
        return await self._ask(
            asks.bulk(verb, wanted, dry_run=dry_run, reason=reason, force=force, cursor=cursor)
        )

    async def result(self, session: str) -> ResultView:
        """How a session ended. Raises SessionStillRuns while it has not."""
        return await self._ask(asks.result(session))

    async def steps(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[StepView]:
        """Some of a session's steps."""
        return await self._ask(asks.steps(session, limit, cursor))

    async def ledger(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[LedgerEntry]:
        """Some of a session's iterations, in the order in which they ended."""
        return await self._ask(asks.ledger(session, limit, cursor))

    def events(self, session: str, after: str | None = None) -> AsyncIterator[Event]:
        """Each event after the one named, old ones first, until the session has ended."""
        return follow_async(self._transport, session, after=after or BEGINNING)

    async def transcript(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[TranscriptEntry]:
        """Some of what agents and people said in a session, in order."""
        return await self._ask(asks.transcript(session, limit, cursor))

    async def transcript_text(self, session: str) -> str:
        """All of it as Markdown."""
        return await self._ask(asks.transcript_text(session))

    async def event_page(
        self, session: str, *, after: str | None = None, limit: int | None = None
    ) -> Page[Event]:
        """Some of the events that are there already; `next` is the `after` of the next page."""
        return await self._ask(asks.event_page(session, after, limit))

    async def export(self, session: str) -> ExportView:
        """Everything that is kept of a session."""
        return await self._ask(asks.export(session))

    async def export_text(self, session: str, part: Literal["all", "ledger"] = "all") -> str:
        """The same as JSON, or the ledger alone as JSON Lines."""
        return await self._ask(asks.export_text(session, part))

    async def stop(self, session: str, *, seen: SessionView | None = None) -> SessionView:
        """Let nothing new start, and hand back what runs; resume goes on from there.

        Raises SessionChanged where it is no longer as it was `seen`, here and below.
        """
        return await self._steer(asks.control(session, "stop", seen))

    async def resume(
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
        return await self._steer(asks.control(session, "resume", seen, **more))

    async def exit(
        self, session: str, reason: str, *, seen: SessionView | None = None
    ) -> SessionView:
        """End a session by intent, with the reason."""
        return await self._steer(asks.control(session, "exit", seen, reason=reason))

    async def abort(
        self, session: str, reason: str | None = None, *, seen: SessionView | None = None
    ) -> SessionView:
        """End a session by force."""
        return await self._steer(asks.control(session, "abort", seen, reason=reason))

    async def flows(self) -> list[FlowView]:
        """The flows of the catalog, the broken ones with what is wrong with them."""
        return await self._ask(asks.flows())

    async def flow(self, name: str) -> FlowView:
        """One of them, with what its file says. Raises FlowUnknown."""
        return await self._ask(asks.flow(name))

    async def run_flow(
        self,
        name: str,
        run: FlowRun | Mapping[str, Any] = NO_WISHES,
        idempotency_key: str | None = None,
    ) -> SessionView:
        """Run a flow of the catalog. The same key with the same wishes is the same session."""
        return await self._ask(asks.run_flow(name, run, idempotency_key))

    async def check_flow(self, definition: Any) -> FlowCheckView:
        """Whether a flow that is being written could be run, and all that is wrong with it."""
        return await self._ask(asks.check_flow(definition))

    async def answer(self, session: str, text: str, address: str | None = None) -> SessionView:
        """Answer what a session asks of a person. Raises AnswerUnwanted."""
        return await self._ask(asks.answer(session, text, address))

    async def rehome(
        self, session: str, place: str, *, seen: SessionView | None = None
    ) -> SessionView:
        """Bind a session to another place, with all that waits in it."""
        return await self._steer(asks.rehome(session, place, seen))

    async def delete(
        self, session: str, *, force: bool = False, seen: SessionView | None = None
    ) -> SessionView | None:
        """Forget a session; None once it is gone. Raises SessionStillRuns while it has not ended.

        By force one that runs is aborted first; its view says that it is still to go.
        """
        return await self._ask(asks.delete(session, force=force, seen=seen))

    async def workers(self) -> list[WorkerView]:
        """The worker hosts that told of themselves lately, each with what it does now."""
        return await self._ask(asks.workers())

    async def agents(self) -> list[AgentView]:
        """The agents that the workers know, with where each can be used."""
        return await self._ask(asks.agents())

    async def tools(self) -> list[ToolView]:
        """The tools that the workers have, with where each can be used."""
        return await self._ask(asks.tools())

    async def queues(self) -> list[QueueView]:
        """Every queue, with what stands in it and who takes from it."""
        return await self._ask(asks.queues())

    async def fleet(self) -> FleetView:
        """The whole fleet at one glance."""
        return await self._ask(asks.fleet())

    async def diffs(
        self,
        session: str,
        *,
        iteration: int | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[DiffView]:
        """What each doer changed in its folder, in order; of one iteration, or of all."""
        return await self._ask(asks.diffs(session, iteration, limit, cursor))

    async def receipt(self, session: str) -> ReceiptView:
        """What the last stop, exit or abort of a session met, and what became of it."""
        return await self._ask(asks.receipt(session))

    async def explain(self, session: str) -> ExplainView:
        """Why a session waits or why it ended, and what to do next."""
        return await self._ask(asks.explain(session))

    async def fsck(self, *, repair: bool = False) -> FsckView:
        """Cross-check all that Redis and the broker hold, and mend it if asked."""
        found: FsckView | None = None
        while found is None or found.next is not None:
            cursor = found.next if found is not None else None
            found = joined(found, await self._ask(asks.fsck(repair=repair, cursor=cursor)))
        return found

    async def limits(self) -> list[LimitView]:
        """All limits, by key."""
        return await self._ask(asks.all_limits())

    async def limit(self, key: str) -> LimitView:
        """The limit of one key. Raises LimitUnknown."""
        return await self._ask(asks.limit(key))

    async def set_limit(
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
        return await self._ask(asks.set_limit(key, concurrency, per_minute, seen))

    async def remove_limit(self, key: str, *, seen: LimitView | None = None) -> None:
        """Let as many attempts with a key run as there are workers for."""
        await self._ask(asks.remove_limit(key, seen))

    async def tokens(self) -> list[TokenView]:
        """All tokens but the API's own, the newest first."""
        return await self._ask(asks.all_tokens())

    async def create_token(
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
        return await self._ask(
            asks.create_token(name, scopes, expires_s, quotas, webhook, idempotency_key)
        )

    async def revoke_token(self, token: str) -> None:
        """Let nobody in with a token any more, by its id. Raises TokenUnknown."""
        await self._ask(asks.revoke_token(token))

    async def ping(self) -> None:
        """Return once the API and its Redis answer. Raises ApiAway or Unavailable."""
        await self._ask(asks.ping())

    async def wait(self, session: str, timeout: float | None = None) -> ResultView:
        """How the session ended, once it has. Raises WaitTimedOut after so many seconds."""
        since = time.monotonic()
        while True:
            view = await self.session(session)
            if view.ended:
                try:
                    return await self.result(session)
                except SessionStillRuns:
                    pass  # Somebody has resumed it in between.
            pause_s = next_look_s(session, view.status, time.monotonic() - since, timeout)
            await asyncio.sleep(pause_s)

    async def _ask(self, ask: Ask[T]) -> T:
        return ask.read(await self._transport.send(ask.call))

    async def _steer(self, steer: Steer) -> SessionView:
        answer = await self._transport.send(steer.call)
        try:
            return asks.read_session(answer)
        except (ControlRefused, SessionChanged):
            if answer.repeated:
                view = await self.session(steer.session)
                if steer.is_done(view):
                    return view
            raise
