"""Watches the inline calls of a worker's pool processes from its main process.

An inline function may hold the interpreter, so that no thread of its process can renew the lease,
notice a stop or keep the time. The watchdog does that for it. To end a call it stops the process,
looks whether that call still runs, and kills the process only then: so it ends no later attempt.
The other steps that the process holds are handed back uncounted.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from app.core.records import Grant
from app.engine import Engine
from app.sessions.attempts import Work
from app.sweep import HeldStep, expire_attempt
from tasks.periodic import STEADY, Pace, PeriodicThread
from workers.attempt.heartbeat import WAIT_S, Heartbeats, Lease
from workers.attempt.settle import Held, Settler
from workers.checkers.verdicts import function_verdict
from workers.inline_calls import CallResult
from workers.processes.orphans import has_ended, stop_and_decide
from workers.processes.output import Captured
from workers.processes.process import ProcessResult
from workers.processes.warm_pool import CallSlots, RunningCall
from workers.tools.tool import function_outcome

log = logging.getLogger(__name__)

#: Seconds between two rounds, and the age from which a call is looked at: most are over before.
EVERY_S = 0.1
SEEN_S = 0.25

_GRANT = {"address", "fence", "nonce", "attempt", "lease", "deadline", "lost", "failed"}


def describe_call(name: str, leases: Sequence[Lease]) -> bytes:
    """Serializes an in-process call for the watchdog: function name, then leases, its own first."""
    first = leases[0]
    told = json.dumps([name, first.ref.id, first.ref.root, first.good])
    return f"[{told},{','.join(map(_grant_of, leases))}]".encode()


def _grant_of(lease: Lease) -> str:
    if lease.told is None:
        lease.told = lease.grant.model_dump_json(include=_GRANT)
    return lease.told


class _Held(NamedTuple):
    """An attempt of a watched process."""

    ref: SessionRef
    grant: Grant


@dataclass
class _Watched:
    """A call that has taken longer than most."""

    call: RunningCall
    name: str
    lease: Lease
    #: The other attempts of its process, until they are handed back.
    others: Sequence[_Held]


class InlineWatchdog(PeriodicThread):
    """Keeps the leases of inline calls and ends those that must end."""

    def __init__(
        self,
        engine: Engine,
        slots: CallSlots,
        heart: Heartbeats,
        *,
        worker: str,
        pace: Pace = STEADY,
    ) -> None:
        super().__init__("inline calls", EVERY_S, self.look, pace=pace)
        self._engine = engine
        self._slots = slots
        self._heart = heart
        self._worker = worker
        self._watched: dict[int, _Watched] = {}

    def look(self) -> None:
        """Check the long in-process calls: keep their leases, or kill processes that must end."""
        now = time.monotonic()
        running = {call.slot: call for call in self._slots.running()}
        for slot, watched in [*self._watched.items()]:
            call = running.get(slot)
            if call is None or call.number != watched.call.number:
                self._forget(watched)
            else:
                watched.call = call  # its time limit may be another one by now
        for call in running.values():
            is_due = now - call.started >= SEEN_S or has_ended(call.pid)
            if is_due and call.slot not in self._watched:
                self._watch(call)
        for watched in [*self._watched.values()]:
            self._look_at(watched, now)

    def _watch(self, call: RunningCall) -> None:
        """Begin to keep the lease of a call, unless it has just returned."""
        text = self._slots.text(call)
        if not self._slots.runs(call):
            return
        (name, session, root, good), *grants = json.loads(text)
        ref = SessionRef(session, root)
        first, *others = (_Held(ref, Grant.model_validate(one)) for one in grants)
        lease = self._heart.keep(ref, first.grant, sent=good)
        self._heart.begin(lease)
        self._watched[call.slot] = _Watched(call, name, lease, others)

    def _forget(self, watched: _Watched) -> None:
        self._heart.drop(watched.lease)
        del self._watched[watched.call.slot]

    def _look_at(self, watched: _Watched, now: float) -> None:
        call, lease = watched.call, watched.lease
        if has_ended(call.pid):
            self._report(watched, partial(self._expire, watched))
        elif lease.ended.is_set():
            if self._kill(call):
                log.warning("inline call ended", extra=_about(watched) | {"why": str(lease.why)})
                self._report(watched, partial(self._release, watched))
        elif now > call.limit:
            if self._kill(call):
                log.warning("inline call timed out", extra=_about(watched))
                self._report(watched, partial(self._settle_timeout, watched))
        elif watched.others and now - call.started > WAIT_S:
            self._hand_back_others(watched)

    def _kill(self, call: RunningCall) -> bool:
        """Kill the process if it is still in this call; returns whether it was."""
        seen: list[bool] = []

        def still_runs() -> bool:
            seen.append(self._slots.runs(call))
            return seen[0]

        stop_and_decide(call.pid, still_runs)
        return seen == [True]

    def _hand_back_others(self, watched: _Watched) -> None:
        """Hand back the steps that wait behind a call that is not quick."""
        noted: list[bool] = []

        def note() -> bool:
            if self._slots.runs(watched.call):
                self._slots.hand_back(watched.call)
                noted.append(True)
            return False

        stop_and_decide(watched.call.pid, note)
        if noted:
            others, watched.others = watched.others, ()
            self._in_background(partial(self._release_others, others))

    def _report(self, watched: _Watched, end: Callable[[], object]) -> None:
        """Report the end of a call whose process is dead, and hand back its other attempts."""
        self._slots.free(watched.call)
        del self._watched[watched.call.slot]

        def report() -> None:
            try:
                end()
            finally:
                self._heart.drop(watched.lease)
                self._release_others(watched.others)

        self._in_background(report)

    def _in_background(self, work: Callable[[], object]) -> None:
        """Wait for the store in a thread of its own, so that other calls are looked at in time."""
        threading.Thread(target=work, name="inline call ended", daemon=True).start()

    def _settler(self, pid: int) -> Settler:
        return Settler(self._engine, worker=self._owner(pid), secrets=lambda _work: frozenset())

    def _owner(self, pid: int) -> str:
        return f"{self._worker}/{pid}"

    def _expire(self, watched: _Watched) -> None:
        log.warning("pool process lost in an inline call", extra=_about(watched))
        lease = watched.lease
        owner = self._owner(watched.call.pid)
        expire_attempt(self._engine, HeldStep(lease.ref, lease.grant.address, owner))

    def _release(self, watched: _Watched) -> None:
        if watched.lease.ours:
            self._settler(watched.call.pid).hand_back(watched.lease)

    def _release_others(self, others: Sequence[_Held]) -> None:
        for one in others:
            self._engine.attempts.release(one.ref, one.grant, why="waited")

    def _settle_timeout(self, watched: _Watched) -> None:
        lease, call = watched.lease, watched.call
        work = self._work(lease)
        limit_s = call.limit - call.started
        settler = self._settler(call.pid)
        outcome = _timed_out(work, watched.name, limit_s)
        settled = settler.run_guarded(
            lease, partial(settler.settle, Held(lease, work, outcome, ()))
        )
        if settled is not None:
            self._engine.transitions.publish(lease.ref, settled.answer.hints)

    def _work(self, lease: Lease) -> Work:
        try:
            return self._engine.attempts.work(lease.ref, lease.grant)
        except Exception:  # noqa: BLE001 - the inputs only add to the record of the step
            return self._engine.attempts.bare_work(lease.ref, lease.grant)


def _timed_out(work: Work, name: str, timeout_s: float) -> Outcome:
    ended_ms = time.time_ns() // 1_000_000
    result = ProcessResult(
        exit_code=None,
        signal=None,
        stdout=Captured(),
        stderr=Captured(),
        started_ms=ended_ms - int(timeout_s * 1000),
        ended_ms=ended_ms,
        timed_out=True,
    )
    called = CallResult(result, unfinished=True)
    if work.step.action is Action.CHECK:
        return function_verdict(name, called, timeout_s=timeout_s)
    return function_outcome(name, called, timeout_s=timeout_s)


def _about(watched: _Watched) -> dict[str, str]:
    return {
        "session": watched.lease.ref.id,
        "step": watched.lease.grant.address,
        "function": watched.name,
    }
