"""How an attempt ends at the store: settled, handed back or refused, once the store answers."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from app.engine import Engine
from app.errors import ProgramNewer, ProgramStale, SessionUnknown, StoreAway
from app.outcomes import Outcome, Usage
from app.reasons import Reason, ReasonCode
from app.records import Answer
from app.redaction import redacted
from app.texts import cut
from app.working import Settling, Work
from workers.lease import Lease
from workers.looking import Look

log = logging.getLogger(__name__)

#: Seconds between tries while the store is away.
AGAIN_S = 0.5
#: Characters of what an exception says that its step's reason quotes.
WHY_LIMIT = 1_000

T = TypeVar("T")


class Settled(NamedTuple):
    """What the store answered of an attempt that has ended."""

    answer: Answer
    #: When the call was first sent: what it granted is leased from then.
    sent: float


class Held(NamedTuple):
    """An outcome that is yet to be settled, and the nonces of claims that its settle may make."""

    lease: Lease
    work: Work
    outcome: Outcome
    take: Sequence[str]


class Settler:
    """Ends attempts; what is ours no more is given up, which is None."""

    def __init__(
        self, engine: Engine, *, worker: str, secrets: Callable[[], frozenset[str]]
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._secrets = secrets

    def settle(self, held: Held, look: Look | None = None) -> Settled | None:
        """Record the outcome, with what was seen of the folder."""
        lease, work, outcome, take = held
        if look is not None:
            outcome = look.seen(outcome, self._secrets())
        patch, changed = (look.patch, look.changed) if look is not None else (None, False)
        sent = time.monotonic()

        def settle() -> Answer:
            return self._engine.settle(
                work, outcome, take=take, worker=self._worker, patch=patch, changed=changed
            )

        answer = patiently(settle, lease)
        if answer is None:
            log.warning("outcome given up", extra={"word": outcome.word})
            return None
        _tell_of_its_end(work, outcome, answer.word)
        return Settled(answer, sent)

    def settle_all(self, held: Sequence[Held]) -> Iterator[Settled]:
        """Record outcomes of one session in one round trip, or each by itself where that fails."""
        sent = time.monotonic()
        answers: Sequence[Answer] = ()
        if len(held) > 1 and all(one.lease.ours for one in held):
            each = [Settling(one.work, one.outcome, one.take) for one in held]
            with suppress(Exception):  # each by itself says what is wrong with it
                answers = self._engine.settle_all(each, worker=self._worker)
        if answers:
            for one, answer in zip(held, answers, strict=True):
                _tell_of_its_end(one.work, one.outcome, answer.word)
                yield Settled(answer, sent)
            return
        for one in held:
            settled = self.whatever_breaks(one.lease, partial(self.settle, one))
            if settled is not None:
                yield settled

    def whatever_breaks(self, lease: Lease, carry_out: Callable[[], T]) -> T | Settled | None:
        """Carry the step out; what breaks that should not is told as its failure.

        Nobody would record anything else of it: it would be lost, again and again.
        """
        try:
            return carry_out()
        except (StoreAway, SessionUnknown, ProgramNewer, ProgramStale):
            raise
        except Exception as error:
            if not lease.ours:
                raise
            log.exception("attempt broke")
            why = redacted(cut(f"our fault: {type(error).__name__}: {error}", WHY_LIMIT))
            return self.refuse(lease, why)

    def refuse(self, lease: Lease, why: str) -> Settled | None:
        """Fail a step that nobody signed, and one whose outcome cannot be told."""
        log.error("step refused", extra={"why": why})
        sent = time.monotonic()
        usage = lease.came_to or lease.used
        answer = patiently(
            lambda: self._engine.refuse(lease.ref, lease.grant, why=why, usage=usage), lease
        )
        return None if answer is None else Settled(answer, sent)

    def unread(self, lease: Lease, why: str) -> Settled | None:
        """Fail a step whose inputs cannot be read."""
        work = self._engine.bare_work(lease.ref, lease.grant)
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=lease.grant.address)
        outcome = Outcome(word="failed", text=why, reason=reason, retryable=False)
        return self.settle(Held(lease, work, outcome, ()))

    def hand_back(
        self, lease: Lease, usage: Usage | None = None, look: Look | None = None
    ) -> Settled | None:
        """Let others have an attempt that was told to end; it is not counted."""
        why = str(lease.why)
        seen = look if lease.ours else None
        digest, changed = (seen.digest(), seen.changed) if seen is not None else (None, False)
        log.info("step handed back", extra={"why": why})
        sent = time.monotonic()
        release = partial(self._engine.release, why=why, usage=usage)
        answer = patiently(
            lambda: release(lease.ref, lease.grant, digest=digest, changed=changed), lease
        )
        return None if answer is None else Settled(answer.model_copy(update={"hints": ()}), sent)


def patiently(call: Callable[[], T], lease: Lease) -> T | None:
    """Call until the store answers; None once the attempt is somebody else's."""
    while lease.ours:
        try:
            return call()
        except StoreAway:
            # The heart notices when the lease is over; an ended body may still be settled.
            time.sleep(AGAIN_S)
    return None


def _tell_of_its_end(work: Work, outcome: Outcome, answer: str) -> None:
    """Of a quick step that did well its session's events tell; a line takes as long as it does."""
    if not work.step.quick or outcome.word == "failed":
        told = {"word": outcome.word, "verdict": outcome.verdict, "answer": answer}
        log.info("step settled", extra=told)
