"""Heartbeats: renew the leases of a process's attempts, and cancel bodies that must end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from app.core.addresses import SessionRef
from app.core.outcomes import Usage
from app.core.records import Grant
from app.engine import Engine
from leadhand.errors import LeadhandError

log = logging.getLogger(__name__)

#: Heartbeats per lease, and the most seconds between two; a stop takes effect within that time.
BEATS = 3
BEAT_S = 2.0
#: Seconds that a granted step may wait for the one before it in this process.
WAIT_S = 1.0
#: Seconds between two rounds of each thread.
TICK_S = 0.2

#: The launcher kills a body KILL_BEFORE_S before its lease expires, and the worker cancels it
#: ASK_BEFORE_S before, each at most that part of the lease. So no body outlives its lease.
KILL_BEFORE_S, KILL_PART = 1.0, 0.05
ASK_BEFORE_S, ASK_PART = 3.0, 0.1
#: A lease expires so many seconds after the step's deadline even if it is renewed. Less than the
#: store's own grace (GRACE_MS in lib/attempts.lua).
PAST_DEADLINE_S = 9.0

Why = Literal["stop", "cancel", "lost", "fenced", "drain"]


class Lease:
    """One attempt's lease on its step. `ended` cancels the body; `why` is the reason."""

    def __init__(self, ref: SessionRef, grant: Grant, *, sent: float, lease_s: float) -> None:
        self.ref = ref
        self.grant = grant
        #: The grant as JSON, once a call has been written down for the watchdog of inline calls.
        self.told: str | None = None
        self.ended = threading.Event()
        self.why: Why | None = None
        self._ask_s = lease_s - min(ASK_BEFORE_S, lease_s * ASK_PART)
        self._kill_s = lease_s - min(KILL_BEFORE_S, lease_s * KILL_PART)
        #: When the last successful renewal was sent, on the monotonic clock.
        self.good = sent
        self.due = sent
        #: When the lease was granted, and whether its body has started.
        self.since = sent
        self.begun = False
        #: The usage that the running body has reported so far.
        self.used: Usage | None = None
        #: The usage of a finished body, which the settle reports and no heartbeat.
        self.came_to: Usage | None = None

    def spent(self, usage: Usage) -> None:
        """Record the attempt's usage (cost, tokens) so far; the next heartbeat reports it."""
        self.used = usage

    def end(self, why: Why) -> None:
        """Cancel the attempt's running work with a reason; later calls change nothing."""
        if not self.ended.is_set():
            self.why = why
            self.ended.set()

    def is_over(self, now: float) -> bool:
        """Whether the lease was not renewed in time, so that the body must be cancelled."""
        return now - self.good > self._ask_s

    def until(self, timeout_s: float) -> float:
        """Return when a body with this timeout must have ended, on the monotonic clock."""
        return min(self.good + self._kill_s, self.since + timeout_s + PAST_DEADLINE_S)

    @property
    def ours(self) -> bool:
        """Whether this worker still owns the attempt, so that it may settle it."""
        return self.why not in ("lost", "fenced")


class Heartbeats:
    """Sends the heartbeats of every attempt of this process, over a connection of its own."""

    def __init__(
        self,
        engine: Engine,
        *,
        draining: Callable[[], bool] = lambda: False,
        lend: Callable[[bool], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._draining = draining
        #: Called with whether an attempt of this process has a child session at work.
        self._lend = lend
        self._lending: set[Lease] = set()
        self._drain_s = engine.settings.drain_s
        self._drain_at: float | None = None
        self._lease_s = engine.settings.lease_s
        self._every_s = min(self._lease_s / BEATS, BEAT_S)
        self._held: set[Lease] = set()
        self._lock = threading.Lock()
        self._kept = threading.Condition(self._lock)
        self._threads: list[threading.Thread] = []

    def keep(self, ref: SessionRef, grant: Grant, *, sent: float) -> Lease:
        """Start heartbeats for an attempt and return its lease; released unless begun soon."""
        lease = Lease(ref, grant, sent=sent, lease_s=self._lease_s)
        lease.due = sent + self._every_s
        with self._lock:
            self._held.add(lease)
            self._kept.notify_all()
            self._start()
        return lease

    def begin(self, lease: Lease) -> bool:
        """Mark an attempt as begun; returns False if it was released or has expired."""
        with self._lock:
            lease.begun = lease in self._held
        return lease.begun and not lease.is_over(time.monotonic())

    def drop(self, lease: Lease) -> None:
        """Stop sending heartbeats for an attempt."""
        with self._lock:
            self._held.discard(lease)
            self._note_children(lease, at_work=False)

    def _note_children(self, lease: Lease, *, at_work: bool) -> None:
        """Lend this process' slot while its attempts have active children, or take it back."""
        lent = bool(self._lending)
        (self._lending.add if at_work and lease in self._held else self._lending.discard)(lease)
        if lent != bool(self._lending):
            self._lend(not lent)

    def _start(self) -> None:
        """Start two threads: the one that fences makes no calls, so that none can block it."""
        if self._threads:
            return
        for name, look in (("heart", self._beat_if_due), ("fence", self._fence)):
            thread = threading.Thread(target=self._run, args=(look,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, look: Callable[[Lease], None]) -> None:
        while True:
            with self._lock:
                self._kept.wait_for(lambda: self._held)
                held = list(self._held)
            for lease in held:
                try:
                    look(lease)
                except Exception:  # the next heartbeat is tried whatever the error
                    log.exception("beat failed", extra=_ids(lease))
            time.sleep(TICK_S)

    def _fence(self, lease: Lease) -> None:
        now = time.monotonic()
        if lease.is_over(now):
            lease.end("fenced")
        if self._drain_expired(now):
            lease.end("drain")

    def _beat_if_due(self, lease: Lease) -> None:
        now = time.monotonic()
        if not lease.begun and now - lease.since > WAIT_S:
            self._hand_back(lease)
        elif now >= lease.due and lease.ours:  # another one may have it, or get it
            self._beat(lease, now)

    def _hand_back(self, lease: Lease) -> None:
        """Hand back a quick step that waits behind a slow one, for another worker."""
        with self._lock:
            if lease.begun or lease not in self._held:
                return
            self._held.discard(lease)
            lease.end("lost")
        # In a thread of its own: publishing hints may block on the broker.
        threading.Thread(target=self._release, args=(lease,), name="hand back", daemon=True).start()

    def _release(self, lease: Lease) -> None:
        try:
            self._engine.attempts.release(lease.ref, lease.grant, why="waited")
        except LeadhandError as error:  # the sweep reassigns it when its lease expires
            log.warning("not handed back", extra=_ids(lease) | {"why": str(error)})

    def _drain_expired(self, now: float) -> bool:
        if not self._draining():
            return False
        self._drain_at = self._drain_at or now + self._drain_s
        return now >= self._drain_at

    def _beat(self, lease: Lease, sent: float) -> None:
        lease.due = sent + self._every_s
        try:
            answer = self._engine.attempts.beat(lease.ref, lease.grant, spent=lease.used)
        except LeadhandError as error:
            # The store is unreachable: the attempt continues until its lease expires.
            lease.due = sent + 1.0
            log.warning("beat failed", extra=_ids(lease) | {"why": str(error)})
            return
        with self._lock:
            self._note_children(lease, at_work=answer.children)
        match word := answer.word:
            case "ok":
                lease.good = sent
            case "stop" | "cancel" | "lost":
                lease.good = sent
                lease.end(word)
            case _:
                log.warning("unknown answer to a beat", extra=_ids(lease) | {"word": word})


def _ids(lease: Lease) -> dict[str, str]:
    return {"session": lease.ref.id, "step": lease.grant.address}
