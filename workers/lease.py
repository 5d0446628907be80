"""Heartbeats: one thread per process keeps its attempts' leases, and tells bodies when to end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Literal

from app.engine import Engine
from app.errors import LeadhandError
from app.keys import SessionRef
from app.outcomes import Usage
from app.records import Grant

log = logging.getLogger(__name__)

#: How many beats fit into a lease, and the longest time between two: stop is heard that soon.
BEATS = 3
BEAT_S = 2.0
#: Seconds that a granted step may wait for the one before it in the same process.
WAIT_S = 1.0
#: How often the thread looks at its attempts, in seconds.
TICK_S = 0.2

Why = Literal["stop", "cancel", "lost", "fenced", "drain"]


class Lease:
    """One attempt's hold on its step. A body ends when `ended` is set; `why` tells the reason."""

    def __init__(self, ref: SessionRef, grant: Grant, *, sent: float) -> None:
        self.ref = ref
        self.grant = grant
        self.ended = threading.Event()
        self.why: Why | None = None
        #: When the call that last extended the lease was first sent, on the monotonic clock.
        self.good = sent
        self.due = sent
        #: When it was granted, and whether its body has begun.
        self.since = sent
        self.begun = False
        #: What the body told so far of what it used.
        self.used: Usage | None = None
        #: What it used in all, once it is done; the settle passes that on, and no heartbeat.
        self.came_to: Usage | None = None

    def spent(self, usage: Usage) -> None:
        """The body tells what it used so far; the next heartbeat passes it on."""
        self.used = usage

    def end(self, why: Why) -> None:
        """Tell the body to end; the first reason stands."""
        if not self.ended.is_set():
            self.why = why
            self.ended.set()

    @property
    def ours(self) -> bool:
        """Whether the outcome may be settled: a lost or fenced attempt belongs to somebody else."""
        return self.why not in ("lost", "fenced")


class Heart:
    """Beats for every attempt of this process, over a connection that is the thread's own."""

    def __init__(self, engine: Engine, *, draining: Callable[[], bool] = lambda: False) -> None:
        self._engine = engine
        self._draining = draining
        self._drain_s = engine.settings.drain_s
        self._drain_at: float | None = None
        self._lease_s = engine.settings.lease_s
        self._every_s = min(self._lease_s / BEATS, BEAT_S)
        self._held: set[Lease] = set()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    def keep(self, ref: SessionRef, grant: Grant, *, sent: float) -> Lease:
        """Keep the lease of a grant from now on; who does not begin it soon has it handed back."""
        lease = Lease(ref, grant, sent=sent)
        lease.due = sent + self._every_s
        with self._lock:
            self._held.add(lease)
            self._start()
        return lease

    def begin(self, lease: Lease) -> bool:
        """Whether it is still ours to begin: neither handed back meanwhile nor too old."""
        with self._lock:
            lease.begun = lease in self._held
        return lease.begun and time.monotonic() - lease.good <= self._lease_s

    def let_go(self, lease: Lease) -> None:
        """Nothing more is to be done for this lease."""
        with self._lock:
            self._held.discard(lease)

    def _start(self) -> None:
        """Two threads: the one that fences talks to nobody, so that nothing can hold it up."""
        if self._threads:
            return
        for name, look in (("heart", self._beat_where_due), ("fence", self._fence)):
            thread = threading.Thread(target=self._run, args=(look,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self, look: Callable[[Lease], None]) -> None:
        while True:
            with self._lock:
                held = list(self._held)
            for lease in held:
                try:
                    look(lease)
                except Exception:  # whatever the store answers, the next beat is tried
                    log.exception("beat failed", extra=_ids(lease))
            time.sleep(TICK_S)

    def _fence(self, lease: Lease) -> None:
        now = time.monotonic()
        if now - lease.good > self._lease_s:
            lease.end("fenced")
        if self._overdue_to_drain(now):
            lease.end("drain")

    def _beat_where_due(self, lease: Lease) -> None:
        now = time.monotonic()
        if not lease.begun and now - lease.since > WAIT_S:
            self._hand_back(lease)
        elif now >= lease.due:
            self._beat(lease, now)

    def _hand_back(self, lease: Lease) -> None:
        """A quick step that waits behind one that is slow goes to somebody else."""
        with self._lock:
            if lease.begun or lease not in self._held:
                return
            self._held.discard(lease)
            lease.end("lost")
        # In a thread of its own: telling others may take as long as their broker does.
        threading.Thread(target=self._release, args=(lease,), name="hand back", daemon=True).start()

    def _release(self, lease: Lease) -> None:
        try:
            self._engine.release(lease.ref, lease.grant, why="waited")
        except LeadhandError as error:  # the sweep finds it when its lease is over
            log.warning("not handed back", extra=_ids(lease) | {"why": str(error)})

    def _overdue_to_drain(self, now: float) -> bool:
        if not self._draining():
            return False
        self._drain_at = self._drain_at or now + self._drain_s
        return now >= self._drain_at

    def _beat(self, lease: Lease, sent: float) -> None:
        lease.due = sent + self._every_s
        try:
            word = self._engine.beat(lease.ref, lease.grant, spent=lease.used).word
        except LeadhandError as error:
            # The store is away: the attempt goes on until its lease is over.
            lease.due = sent + 1.0
            log.warning("beat failed", extra=_ids(lease) | {"why": str(error)})
            return
        match word:
            case "ok":
                lease.good = sent
            case "stop" | "cancel" | "lost":
                lease.good = sent
                lease.end(word)
            case _:
                log.warning("beat not understood", extra=_ids(lease) | {"word": word})


def _ids(lease: Lease) -> dict[str, str]:
    return {"session": lease.ref.id, "step": lease.grant.address}
