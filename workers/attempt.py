"""One attempt at a step, from claim to settle, and the quick steps that it may go on with."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple, TypeVar

from app import capabilities
from app.engine import Engine, Work
from app.errors import (
    ProgramNewer,
    ProgramStale,
    ReferenceUnresolved,
    SessionUnknown,
    SpecForeign,
    StoreAway,
)
from app.keys import SessionRef
from app.logs import about
from app.outcomes import Outcome, Usage
from app.program import Action, iteration_of
from app.reasons import Reason, ReasonCode
from app.records import Answer, Grant, Hint
from app.redaction import redacted
from app.texts import cut
from tasks import tracing
from workers import environment
from workers.agents.book import AgentBook
from workers.body import BodyTask, run_body
from workers.hush import secrets_of
from workers.lease import Heart, Lease
from workers.looking import Look, is_looked_at, look_at
from workers.parking import park
from workers.shelf import Shelf
from workers.spills import folder_of
from workers.warm import Warm

log = logging.getLogger(__name__)

#: A sticky stretch goes on for at most so many steps, or so many seconds.
STRETCH_STEPS = 50
STRETCH_S = 1.0
#: How many quick steps one worker process has in hand. Those that wait for the one before them are
#: held meanwhile, and handed back where that one is slow.
TAKE = 4
#: Seconds between tries while the store is away.
AGAIN_S = 0.5
#: Characters of what an exception says that its step's reason quotes.
WHY_LIMIT = 1_000

T = TypeVar("T")

_FALSY = (None, False, "", 0, "false", "no", "0")


class _Settled(NamedTuple):
    answer: Answer
    #: When the call was first sent: what it granted is leased from then.
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
        self._nonces = _nonces()
        self._warm = Warm()
        self._inherited = dict(environment.inherited())
        self._shelf = Shelf(engine.settings.tools)

    def __call__(self, ref: SessionRef, address: str) -> Sequence[Hint] | None:
        """Try for a step; carry it out, and the quick ones that follow. None: not to be had."""
        sent = time.monotonic()
        with about(session=ref.id, step=address):
            answer = self._claim(ref, address)
            if answer is None:
                return None
            if answer.word != "granted":
                log.info("claim refused", extra={"why": answer.why})
                return None
        return self._stretch(ref, self._heart.keep(ref, answer.grants[0], sent=sent))

    def close(self) -> None:
        """End what stays between attempts."""
        self._warm.close()

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Tell other workers of ready steps; the sweep does it where this cannot."""
        try:
            self._engine.publish(ref, hints)
        except StoreAway as error:
            log.warning("hints not sent", extra={"session": ref.id, "why": str(error)})

    def _claim(self, ref: SessionRef, address: str) -> Answer | None:
        nonce = next(self._nonces)
        try:
            return self._engine.claim(ref, address, nonce=nonce, worker=self._worker)
        except (SessionUnknown, StoreAway) as error:
            # A hint to something deleted, or one that the sweep will send again.
            log.info("claim not made", extra={"why": str(error)})
            return None

    def _stretch(self, ref: SessionRef, first: Lease) -> list[Hint]:
        begun, steps = time.monotonic(), 0
        todo, hints = deque([first]), list[Hint]()
        while todo:
            lease = todo.popleft()
            steps += 1
            tired = steps + len(todo) >= STRETCH_STEPS or time.monotonic() - begun > STRETCH_S
            take = 0 if tired or self._draining() else max(0, TAKE - len(todo))
            settled = self._in_turn(ref, lease, take)
            if settled is not None:
                hints += settled.answer.hints
                todo.extend(self._kept(ref, settled))
        return hints

    def _kept(self, ref: SessionRef, settled: _Settled) -> list[Lease]:
        """What a settle granted, kept from now on: one may wait for the one before it."""
        grants = settled.answer.grants
        return [self._heart.keep(ref, grant, sent=settled.sent) for grant in grants]

    def _in_turn(self, ref: SessionRef, lease: Lease, take: int) -> _Settled | None:
        """Carry out one granted step, unless it had to wait too long and was handed back."""
        address, number = lease.grant.address, lease.grant.attempt
        try:
            if not self._heart.begin(lease):
                return None
            with (
                about(session=ref.id, step=address, attempt=str(number)),
                tracing.step(ref.id, address, attempt=number),
            ):
                if lease.ended.is_set():  # it was told to end while it waited for the one before it
                    return self._hand_back(ref, lease.grant, lease, None) if lease.ours else None
                return self._whatever_breaks(ref, lease, take)
        finally:
            self._heart.let_go(lease)

    def _whatever_breaks(self, ref: SessionRef, lease: Lease, take: int) -> _Settled | None:
        """Carry the step out; what breaks that should not is told as its failure.

        Nobody would record anything else of it: it would be lost, again and again.
        """
        try:
            return self._carry_out(ref, lease, take)
        except (StoreAway, SessionUnknown, ProgramNewer, ProgramStale):
            raise
        except Exception as error:
            if not lease.ours:
                raise
            log.exception("attempt broke")
            why = redacted(cut(f"our fault: {type(error).__name__}: {error}", WHY_LIMIT))
            return self._refuse(ref, lease.grant, why, lease)

    def _carry_out(self, ref: SessionRef, lease: Lease, take: int) -> _Settled | None:
        """The body and its settle; None where the step is no longer ours."""
        try:
            work = _patiently(lambda: self._engine.work(ref, lease.grant), lease)
        except ReferenceUnresolved as error:
            return self._settle_unread(ref, lease.grant, str(error), lease)
        except SpecForeign as error:
            return self._refuse(ref, lease.grant, str(error), lease)
        if work is None:
            return None
        moved = self._waits_for_another_lock(work, lease)
        if moved is not None:
            return moved
        _tell_of_its_begin(work)
        look = self._look(work, lease)
        outcome = self._outcome(work, lease)
        if outcome is None:
            return None
        lease.came_to = outcome.usage
        if _was_ended(outcome, lease):
            return self._hand_back(ref, lease.grant, lease, outcome.usage, look)
        return self._settle(work, outcome, lease, take, look)

    def _look(self, work: Work, lease: Lease) -> Look | None:
        """How the folder is that a doer is about to work in."""
        if not is_looked_at(work) or self._outside(work) is not None:
            return None
        left = _patiently(lambda: self._engine.left(work.ref), lease)
        return None if left is None else look_at(work, left, Path(self._engine.settings.spill))

    def _waits_for_another_lock(self, work: Work, lease: Lease) -> _Settled | None:
        """Two names of one folder are one lock: the attempt, handed back to wait for that one."""
        folder = work.locks_another
        if folder is None:
            return None
        sent = time.monotonic()
        answer = _patiently(lambda: self._engine.move_lock(work, folder), lease)
        if answer is None or answer.word == "kept":
            return None
        log.info("step waits for its folder's own lock", extra={"folder": str(folder)})
        return _Settled(answer.model_copy(update={"hints": ()}), sent)

    def _outcome(self, work: Work, lease: Lease) -> Outcome | None:
        """What came of the body; None where the step waits for something and is parked."""
        if _passed_over(work):
            return Outcome(word="skipped")
        if work.step.action in (Action.HUMAN, Action.WAIT, Action.CHILD):
            return _patiently(lambda: park(self._engine, work, self._secrets()), lease)
        outside = self._outside(work)
        return outside or run_body(self._task(work, lease), lease.ended)

    def _outside(self, work: Work) -> Outcome | None:
        """A failure where the working folder is not beneath a root of this worker's.

        A step's own must be there, beneath the session's, wherever links may lead.
        """
        roots, own = self._engine.settings.roots, work.inputs.get("working_folder")
        if work.cwd is None or not (roots or own):
            return None
        folder = work.cwd.resolve()
        if own and not folder.is_relative_to(Path(str(work.facts.cwd)).resolve()):
            return _no_folder(f"{own!r} leads out of the working folder of the run")
        if own and not folder.is_dir():
            return _no_folder(f"{own!r} is no folder in {work.facts.cwd!r}; make it there first")
        if not roots or any(folder.is_relative_to(root.resolve()) for root in roots):
            return None
        place = self._engine.settings.place
        return _no_folder(f"{str(work.cwd)!r} is beneath no root of place {place!r}")

    def _hand_back(
        self,
        ref: SessionRef,
        grant: Grant,
        lease: Lease,
        usage: Usage | None,
        look: Look | None = None,
    ) -> _Settled | None:
        why = str(lease.why)
        digest = look.digest() if look is not None and lease.ours else None
        log.info("step handed back", extra={"why": why})
        sent = time.monotonic()
        answer = _patiently(
            lambda: self._engine.release(ref, grant, why=why, usage=usage, digest=digest), lease
        )
        return None if answer is None else _Settled(answer.model_copy(update={"hints": ()}), sent)

    def _task(self, work: Work, lease: Lease) -> BodyTask:
        settings, grant = self._engine.settings, work.grant
        caller = capabilities.Caller(
            work.ref.id, grant.address, grant.fence, capabilities.BODY_SCOPES
        )
        return BodyTask(
            session=work.ref.id,
            address=grant.address,
            action=work.step.action,
            iteration=iteration_of(grant.address),
            attempt=grant.attempt,
            inputs=work.inputs,
            cwd=work.cwd,
            spill=folder_of(Path(settings.spill), work.ref.id, grant.address, fence=grant.fence),
            timeout_s=work.step.timeout_s,
            url=settings.api_url,
            mint=partial(capabilities.mint, caller, secret=settings.secret),
            inherited=self._inherited,
            agents=self._agents(),
            default_agent=settings.default_agent,
            warm=self._warm,
            shelf=self._shelf,
            conversation=work.step.conversation,
            thread=grant.thread,
            earlier=partial(self._engine.said, work.ref),
            failure=grant.failure,
            on_spent=lease.spent,
        )

    def _settle(
        self, work: Work, outcome: Outcome, lease: Lease, take: int, look: Look | None = None
    ) -> _Settled | None:
        """Settle once the store can be had, or give up what is ours no more."""
        if look is not None:
            outcome = look.seen(outcome, self._secrets())
        patch, changed = (look.patch, look.changed) if look is not None else (None, False)
        nonces = [next(self._nonces) for _ in range(take)]
        sent = time.monotonic()

        def settle() -> Answer:
            return self._engine.settle(
                work, outcome, take=nonces, worker=self._worker, patch=patch, changed=changed
            )

        answer = _patiently(settle, lease)
        if answer is None:
            log.warning("outcome given up", extra={"word": outcome.word})
        else:
            _tell_of_its_end(work, outcome, answer.word)
        return None if answer is None else _Settled(answer, sent)

    def _secrets(self) -> frozenset[str]:
        return secrets_of(self._agents(), self._inherited)

    def _refuse(self, ref: SessionRef, grant: Grant, why: str, lease: Lease) -> _Settled | None:
        """Fail a step that nobody signed, and one whose outcome cannot be told."""
        log.error("step refused", extra={"why": why})
        sent = time.monotonic()
        usage = lease.came_to or lease.used
        answer = _patiently(lambda: self._engine.refuse(ref, grant, why=why, usage=usage), lease)
        return None if answer is None else _Settled(answer, sent)

    def _settle_unread(
        self, ref: SessionRef, grant: Grant, why: str, lease: Lease
    ) -> _Settled | None:
        work = self._engine.bare_work(ref, grant)
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=grant.address)
        outcome = Outcome(word="failed", text=why, reason=reason, retryable=False)
        return self._settle(work, outcome, lease, 0)


def _nonces() -> Iterator[str]:
    """Words that no other process uses, nor this one twice. They are no secrets."""
    mine = secrets.token_hex(6)
    return (f"{mine}-{number}" for number in count(1))


def _patiently(call: Callable[[], T], lease: Lease) -> T | None:
    """Call until the store answers; None once the attempt is somebody else's."""
    while lease.ours:
        try:
            return call()
        except StoreAway:
            # The heart notices when the lease is over; an ended body may still be settled.
            time.sleep(AGAIN_S)
    return None


def _tell_of_its_begin(work: Work) -> None:
    if not work.step.quick:
        log.info("step begun", extra={"action": work.step.action.value})


def _tell_of_its_end(work: Work, outcome: Outcome, answer: str) -> None:
    """Of a quick step that did well its session's events tell; a line takes as long as it does."""
    if not work.step.quick or outcome.word == "failed":
        told = {"word": outcome.word, "verdict": outcome.verdict, "answer": answer}
        log.info("step settled", extra=told)


def _was_ended(outcome: Outcome, lease: Lease) -> bool:
    """Whether the body was ended before it was done: what it had done by then counts for nothing.

    A body that was done first has its outcome recorded, whatever was asked of it meanwhile.
    """
    reason = outcome.reason
    cancelled = reason is not None and reason.code is ReasonCode.CANCELLED
    return cancelled and lease.why is not None


def _no_folder(text: str) -> Outcome:
    """The step cannot work where it is to work; trying again does not help."""
    reason = Reason(code=ReasonCode.FAILED_STEP, text=text)
    return Outcome(word="failed", text=text, reason=reason, retryable=False)


def _passed_over(work: Work) -> bool:
    """Whether the step's condition does not hold."""
    if work.step.when is None:
        return False
    value = work.inputs.get("when")
    return value in _FALSY or value == [] or value == {}
