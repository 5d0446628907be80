"""Carries out the local steps of one session: claims them, calls the tools, reports outcomes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

from leadhand.client.client import AsyncClient, Client
from leadhand.errors import (
    ApiAway,
    LeadhandError,
    Refused,
    SessionUnknown,
    TokenRefused,
    Unavailable,
)
from leadhand.models.local_work import (
    LOST_AFTER_S,
    VALUE_CHARACTERS,
    BeatWork,
    ClaimWork,
    SettleWork,
)
from leadhand.models.views.session import SettledView, WorkGrant, WorkView
from leadhand.research.tool_calls import Called

#: Heartbeats within one lease, and the longest pause between two: a stop and the time limit of a
#: workflow reach a tool with a heartbeat.
_PER_LEASE, _LONGEST_S = 3, 2.0
#: Called with the order of a beat (stop, cancel, lost) for the attempt of this nonce.
OnOrder = Callable[[str, str], None]
#: How long one claim waits for a step, in seconds.
_WAIT_S = 10.0
#: Seconds between two calls while the API is away.
_RETRY_S = 1.0
T = TypeVar("T")
#: Calls the tool of an attempt.
Body = Callable[[WorkGrant], Awaitable[Called]]
#: Called with each outcome that was recorded.
OnSettled = Callable[[WorkGrant, Called, SettledView], Awaitable[None]]
#: Called with each outcome that could not be recorded.
OnUnrecorded = Callable[[WorkGrant, Called], Awaitable[None]]


class Heartbeats:
    """Extends the leases of all attempts in hand, until it is closed."""

    def __init__(
        self, client: Client, session: str, on_order: OnOrder, logger: logging.Logger
    ) -> None:
        self._client = client
        self._session = session
        self._on_order = on_order
        self._logger = logger
        self._attempts: dict[str, BeatWork] = {}
        self._pause_s = _LONGEST_S
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="leadhand-beats", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _e: BaseException | None, _t: TracebackType | None
    ) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join(timeout=_LONGEST_S)

    def keep(self, grant: WorkGrant) -> None:
        """Start to send heartbeats for an attempt, from another thread, until `drop`."""
        beat = BeatWork(address=grant.address, fence=grant.fence, nonce=grant.nonce)
        with self._changed:
            self._attempts[grant.nonce] = beat
            shorter_s = min(_LONGEST_S, grant.lease_s / _PER_LEASE)
            if shorter_s < self._pause_s:
                self._pause_s = shorter_s
                self._changed.notify()

    def drop(self, nonce: str) -> None:
        """Stop sending heartbeats for an attempt."""
        with self._changed:
            self._attempts.pop(nonce, None)

    def _run(self) -> None:
        while True:
            with self._changed:
                # `keep` wakes it, too: a pause that has begun may be longer than a new lease.
                if not self._is_closed:
                    self._changed.wait(self._pause_s)
                if self._is_closed:
                    return
                attempts = dict(self._attempts)
            for nonce, beat in attempts.items():
                self._beat(nonce, beat)

    def _beat(self, nonce: str, beat: BeatWork) -> None:
        try:
            order = self._client.beat_work(self._session, beat).order
        except Refused as error:
            self._logger.warning("heartbeat refused: %s", error)
            order = "lost"  # the session was deleted, or the token is void
        except LeadhandError as error:
            self._logger.warning("heartbeat not sent: %s", error)
            return
        if order != "ok":
            self._on_order(nonce, order)


class LocalWorker:
    """The worker of one session, in the event loop of the caller.

    `client` has the work token of the session. Heartbeats are sent by a thread.
    """

    def __init__(
        self,
        client: AsyncClient,
        session: str,
        *,
        beats: Client,
        body: Body,
        on_settled: OnSettled,
        on_unrecorded: OnUnrecorded,
        on_interrupted: Callable[[], Awaitable[None]],
        parallel: int,
        logger: logging.Logger,
    ) -> None:
        self._client = client
        self._session = session
        self._body = body
        self._on_settled = on_settled
        self._on_unrecorded = on_unrecorded
        #: Stops the session.
        self._on_interrupted = on_interrupted
        self._parallel = parallel
        self._logger = logger
        self._name = worker_name()
        self._loop = asyncio.get_running_loop()
        self._beats = Heartbeats(beats, session, self._order, logger)
        #: The attempts in hand, by nonce.
        self._calls: dict[str, asyncio.Task[None]] = {}
        #: Those whose tools have not returned; only these are cancelled.
        self._in_tools: set[str] = set()
        #: Whether calls are not repeated any more while the API is away.
        self._ends = False
        #: Attempts whose bodies could not say how they ended.
        self._unreported: list[WorkGrant] = []

    async def run(self, *, takes_over: bool) -> str:
        """Run a session's local functions in this process while it is active; return its status.

        With `takes_over` the attempts of earlier workers are lost at once: they have ended.
        """
        claim: asyncio.Task[WorkView] | None = None
        with self._beats:
            try:
                while True:
                    if claim is None and len(self._calls) < self._parallel:
                        claim = asyncio.create_task(self._claim(takes_over=takes_over))
                        takes_over = False
                    await self._any(claim)
                    if claim is None or not claim.done():
                        continue
                    view, claim = claim.result(), None
                    if view.grant is not None:
                        self._start(view.grant)
                    elif view.status != "active":
                        await self._give_up()
                        return view.status
            except BaseException:
                if claim is not None:
                    claim.cancel()
                # First of all: a claim that still waits at the API would get what is given up.
                await self._on_interrupted()
                raise
            finally:
                await self._give_up()

    async def _any(self, claim: asyncio.Task[WorkView] | None) -> None:
        """Wait until the claim or a call is done. Raises the error of a call."""
        waiting = [*self._calls.values(), *([] if claim is None else [claim])]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        for nonce, call in list(self._calls.items()):
            if call.done():
                del self._calls[nonce]
                if not call.cancelled():
                    call.result()

    async def _claim(self, *, takes_over: bool) -> WorkView:
        claim = ClaimWork(
            worker=self._name, nonce=uuid.uuid4().hex, wait_s=_WAIT_S, takes_over=takes_over
        )
        return await self._while_away(lambda: self._client.claim_work(self._session, claim))

    def _start(self, grant: WorkGrant) -> None:
        self._beats.keep(grant)
        self._calls[grant.nonce] = asyncio.create_task(self._carry_out(grant))

    async def _carry_out(self, grant: WorkGrant) -> None:
        self._in_tools.add(grant.nonce)
        try:
            called = await self._body(grant)
        except asyncio.CancelledError:
            self._beats.drop(grant.nonce)
            await self._release(grant)
            raise
        except Exception:
            self._unreported.append(grant)  # it is released once the session is stopped
            raise
        finally:
            self._in_tools.discard(grant.nonce)
        try:
            called, settled = await self._settle(grant, called)
        except BaseException:
            await self._on_unrecorded(grant, called)
            raise
        finally:
            self._beats.drop(grant.nonce)
        await self._on_settled(grant, called, settled)

    async def _settle(self, grant: WorkGrant, called: Called) -> tuple[Called, SettledView]:
        """Record an outcome; one that the API refuses is a failure that is not tried again."""
        try:
            return called, await self._send(grant, called)
        except (Refused, TypeError, ValueError) as error:
            if isinstance(error, (SessionUnknown, TokenRefused, Unavailable)):
                raise
            text = f"its outcome is refused: {error}".encode("utf-8", "replace").decode()
        called = Called(called.elapsed, error=text, retryable=False)
        return called, await self._send(grant, called)

    async def _send(self, grant: WorkGrant, called: Called) -> SettledView:
        """Record an outcome; a long value is uploaded first, in each try, as an artifact."""
        data = _long_value(grant, called)

        async def send() -> SettledView:
            digest = None
            if data is not None:
                digest = (await self._client.put_artifact(self._session, data)).digest
            outcome = _outcome(grant, called, artifact=digest)
            return await self._client.settle_work(self._session, outcome)

        return await self._while_away(send)

    async def _while_away(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until the API responds, but not for longer than it keeps a session without calls."""
        until = time.monotonic() + LOST_AFTER_S
        while True:
            try:
                return await call()
            except (ApiAway, Unavailable) as error:
                if self._ends or time.monotonic() >= until:
                    raise
                self._logger.warning("%s; it is tried again", error)
                await asyncio.sleep(_RETRY_S)

    async def _give_up(self) -> None:
        """Cancel the tools that run, and give their attempts back; report the other outcomes."""
        self._ends = True
        calls = dict(self._calls)
        self._calls.clear()
        for nonce, call in calls.items():
            if nonce in self._in_tools:
                call.cancel()
        await asyncio.gather(*calls.values(), return_exceptions=True)
        while self._unreported:
            grant = self._unreported.pop()
            self._beats.drop(grant.nonce)
            await self._release(grant)

    async def _release(self, grant: WorkGrant) -> None:
        """Give an attempt back; if the API is away, its lease ends."""
        with suppress(ApiAway):
            await self._client.settle_work(self._session, _outcome(grant, None))

    def _order(self, nonce: str, order: str) -> None:
        """Called by the thread of heartbeats."""
        del order  # whatever it is, the outcome does not count any more
        self._loop.call_soon_threadsafe(self._end, nonce)

    def _end(self, nonce: str) -> None:
        call = self._calls.get(nonce)
        if call is not None and nonce in self._in_tools:
            call.cancel()


def worker_name() -> str:
    """Returns a name for this process as a worker: its host, its pid, and a random word."""
    host = re.sub(r"[^A-Za-z0-9_.-]", "-", socket.gethostname()).lstrip("_.-")[:60] or "local"
    return f"{host}:{os.getpid()}:{uuid.uuid4().hex[:8]}"


def _long_value(grant: WorkGrant, called: Called) -> bytes | None:
    """The artifact of a value that is too long for a request; it has the nonce of its attempt."""
    if called.error is not None:
        return None
    text = json.dumps({"nonce": grant.nonce, "value": called.value}, ensure_ascii=False)
    data = text.encode("utf-8", "replace")
    return data if len(data) > VALUE_CHARACTERS else None


def _outcome(grant: WorkGrant, called: Called | None, *, artifact: str | None = None) -> SettleWork:
    """The outcome of a call; None for one that was cancelled."""
    attempt = {"address": grant.address, "fence": grant.fence, "nonce": grant.nonce}
    if called is None:
        return SettleWork.model_validate({**attempt, "outcome": "released"})
    if called.error is None:
        value = {"value": called.value} if artifact is None else {"artifact": artifact}
        return SettleWork.model_validate({**attempt, "outcome": "succeeded", **value})
    return SettleWork.model_validate(
        {
            **attempt,
            "outcome": "failed",
            "error": called.error[:20_000],
            "why": called.why,
            "retryable": called.retryable,
        }
    )
