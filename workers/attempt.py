"""One attempt at a step, from claim to settle, and the quick steps that it may go on with."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from app import capabilities
from app.engine import Engine, Work
from app.errors import ReferenceUnresolved, SessionUnknown, StoreAway
from app.keys import SessionRef
from app.outcomes import Outcome
from app.program import Action, iteration_of
from app.reasons import Reason, ReasonCode
from app.store import Answer, Grant, Hint
from workers.agents.book import AgentBook
from workers.body import BodyTask, run_body
from workers.lease import Heart, Lease
from workers.parking import park

log = logging.getLogger(__name__)

#: A sticky stretch goes on for at most so many steps, or so many seconds.
STRETCH_STEPS = 50
STRETCH_S = 1.0
#: How many quick steps one settle may hand to its worker.
TAKE = 4
#: Seconds between tries to settle while the store is away.
SETTLE_AGAIN_S = 0.5

_FALSY = (None, False, "", 0, "false", "no", "0")


class _Held(NamedTuple):
    grant: Grant
    #: When the call that granted it was first sent, on the monotonic clock.
    sent: float


class Attempts:
    """Makes attempts for one worker process."""

    def __init__(
        self,
        engine: Engine,
        *,
        worker: str,
        agents: Callable[[], AgentBook],
        heart: Heart,
        draining: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._agents = agents
        self._heart = heart
        self._draining = draining

    def __call__(self, ref: SessionRef, address: str) -> Sequence[Hint] | None:
        """Try for a step; carry it out, and the quick ones that follow. None: not to be had."""
        sent = time.monotonic()
        try:
            answer = self._engine.claim(ref, address, nonce=uuid.uuid4().hex, worker=self._worker)
        except SessionUnknown:
            return None
        if answer.word != "granted":
            log.info("claim refused", extra={"session": ref.id, "step": address, "why": answer.why})
            return None
        return self._stretch(ref, _Held(answer.grants[0], sent))

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Tell other workers of ready steps."""
        self._engine.publish(ref, hints)

    def _stretch(self, ref: SessionRef, first: _Held) -> list[Hint]:
        begun, steps = time.monotonic(), 0
        todo, hints = deque([first]), list[Hint]()
        while todo:
            held = todo.popleft()
            steps += 1
            tired = steps + len(todo) >= STRETCH_STEPS or time.monotonic() - begun > STRETCH_S
            take = 0 if tired or self._draining() else max(0, TAKE - len(todo))
            sent = time.monotonic()
            answer = self._carry_out(ref, held, take)
            if answer is not None:
                hints += answer.hints
                todo.extend(_Held(grant, sent) for grant in answer.grants)
        return hints

    def _carry_out(self, ref: SessionRef, held: _Held, take: int) -> Answer | None:
        """The body and its settle; None where the step is no longer ours."""
        if time.monotonic() - held.sent > self._engine.settings.lease_s:
            return None  # the grant came back older than its lease: somebody else has the step
        with self._heart.hold(ref, held.grant, sent=held.sent) as lease:
            try:
                work = self._engine.work(ref, held.grant)
            except ReferenceUnresolved as error:
                return self._settle_unread(ref, held.grant, str(error), lease)
            if work.step.action in (Action.HUMAN, Action.WAIT, Action.CHILD):
                return self._park(work, lease, take)
            outcome = self._outcome(work, lease)
            if lease.why in ("stop", "cancel", "drain"):
                return self._engine.release(ref, held.grant, why=lease.why)
            return self._settle(work, outcome, lease, take)

    def _park(self, work: Work, lease: Lease, take: int) -> Answer | None:
        if _passed_over(work):
            return self._settle(work, Outcome(word="skipped"), lease, take)
        outcome = park(self._engine, work)
        return self._settle(work, outcome, lease, take) if outcome else None

    def _outcome(self, work: Work, lease: Lease) -> Outcome:
        if _passed_over(work):
            return Outcome(word="skipped")
        started = self._engine.store.now_ms() if work.step.action is Action.JUDGE else None
        outcome = run_body(self._task(work), lease.ended)
        if started is not None and outcome.started_ms is None:
            return outcome.model_copy(update={"started_ms": started, "ended_ms": started})
        return outcome

    def _task(self, work: Work) -> BodyTask:
        settings, grant = self._engine.settings, work.grant
        caller = capabilities.Caller(
            work.ref.id, grant.address, grant.fence, capabilities.BODY_SCOPES
        )
        name = grant.address.replace("/", "_")
        return BodyTask(
            session=work.ref.id,
            address=grant.address,
            action=work.step.action,
            iteration=iteration_of(grant.address),
            attempt=grant.attempt,
            inputs=work.inputs,
            cwd=work.cwd,
            spill=settings.spill / work.ref.id / f"{name}.{grant.fence}",
            timeout_s=work.step.timeout_s,
            url=settings.api_url,
            token=capabilities.mint(caller, secret=settings.secret),
            agents=self._agents(),
            default_agent=settings.default_agent,
        )

    def _settle(self, work: Work, outcome: Outcome, lease: Lease, take: int) -> Answer | None:
        """Settle until the store has it, or the attempt is ours no more."""
        nonces = [uuid.uuid4().hex for _ in range(take)]
        while lease.ours:
            try:
                return self._engine.settle(work, outcome, take=nonces, worker=self._worker)
            except StoreAway:
                # The outcome is in our hands alone; the heart says when to let go.
                lease.ended.wait(SETTLE_AGAIN_S)
                if lease.ended.is_set() and lease.ours:
                    time.sleep(SETTLE_AGAIN_S)
        log.warning("outcome given up", extra={"session": work.ref.id, "step": work.grant.address})
        return None

    def _settle_unread(
        self, ref: SessionRef, grant: Grant, why: str, lease: Lease
    ) -> Answer | None:
        work = self._engine.bare_work(ref, grant)
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=grant.address)
        outcome = Outcome(word="failed", text=why, reason=reason, retryable=False)
        return self._settle(work, outcome, lease, 0)


def _passed_over(work: Work) -> bool:
    """Whether the step's condition does not hold."""
    if work.step.when is None:
        return False
    value = work.inputs.get("when")
    return value in _FALSY or value == [] or value == {}
