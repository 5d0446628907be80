"""Reports the end of attempts to the store: settles, releases or refuses them, with retries."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, TypeVar

from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome, Usage
from app.domain.records import Reply
from app.engine import Engine
from app.errors import ProgramStale
from app.operations.attempts import Settling, Work
from app.redaction import redact
from app.truncate import cut
from leadhand.errors import ProgramNewer, SessionUnknown, StoreAway
from leadhand.models.reasons import Reason, ReasonCode
from workers.attempt.heartbeat import Lease
from workers.folders.check_round import CheckRound, LoneCheck
from workers.folders.work_diff import Look
from workers.processes.no_room import NoRoom

#: What looks at the folder of a step before its body and after it.
Looked = Look | CheckRound | LoneCheck

log = logging.getLogger(__name__)

#: Seconds between retries while the store is unreachable.
RETRY_S = 0.5
#: Characters of an exception's message that a step's reason quotes.
WHY_LIMIT = 1_000

T = TypeVar("T")


class Settled(NamedTuple):
    """The store's answer to the end of an attempt."""

    answer: Reply
    #: When the call was sent: the leases that it granted start then.
    sent: float


class Held(NamedTuple):
    """An outcome to settle, with the nonces of the claims that the settle may make."""

    lease: Lease
    work: Work
    outcome: Outcome
    take: Sequence[str]


class Settler:
    """Reports the end of attempts to the store; returns None if this worker no longer owns one."""

    def __init__(
        self,
        engine: Engine,
        *,
        worker: str,
        secrets: Callable[[Work], frozenset[str]],
        on_no_room: Callable[[], None] = lambda: None,
    ) -> None:
        self._engine = engine
        self._worker = worker
        self._secrets = secrets
        #: Called if the disk became full between a claim and the start of its body.
        self._on_no_room = on_no_room

    def settle(self, held: Held, look: Looked | None = None) -> Settled | None:
        """Report an outcome and the folder's diff to the store; None if the attempt is lost."""
        lease, work, outcome, take = held
        if look is not None:
            outcome = look.add_diff(outcome, self._secrets(work))
        patch, changed = (look.patch, look.changed) if look is not None else (None, False)
        worked = look.work if look is not None else None
        sent = time.monotonic()

        def settle() -> Reply:
            return self._engine.attempts.settle(
                work, outcome, take=take, worker=self._worker, patch=patch, changed=changed,
                worked=worked,
            )  # fmt: skip

        answer = retry_while_away(settle, lease)
        if answer is None:
            log.warning("outcome dropped", extra={"word": outcome.word})
            return None
        _log_end(work, outcome, answer.word)
        return Settled(answer, sent)

    def settle_all(self, held: Sequence[Held]) -> Iterator[Settled]:
        """Report outcomes to the store in one round trip, else one by one; yield its replies."""
        sent = time.monotonic()
        answers: Sequence[Reply] = ()
        if len(held) > 1 and all(one.lease.ours for one in held):
            each = [Settling(one.work, one.outcome, one.take) for one in held]
            with suppress(Exception):  # settling them one by one reports the error
                answers = self._engine.attempts.settle_all(each, worker=self._worker)
        if answers:
            for one, answer in zip(held, answers, strict=True):
                _log_end(one.work, one.outcome, answer.word)
                yield Settled(answer, sent)
            return
        for one in held:
            settled = self.run_guarded(one.lease, partial(self.settle, one))
            if settled is not None:
                yield settled

    def run_guarded(self, lease: Lease, carry_out: Callable[[], T]) -> T | Settled | None:
        """Call `carry_out`; release the attempt if the disk is full, fail it on unexpected errors.

        Otherwise the attempt would stay unreported, be lost, and be retried without end.
        """
        try:
            return carry_out()
        except (StoreAway, SessionUnknown, ProgramNewer, ProgramStale):
            raise
        except NoRoom as error:
            self._on_no_room()
            return self.hand_back(lease, lease.used, why=str(error))
        except Exception as error:
            if not lease.ours:
                raise
            log.exception("attempt broke")
            why = redact(cut(f"internal error: {type(error).__name__}: {error}", WHY_LIMIT))
            return self.refuse(lease, why)

    def refuse(self, lease: Lease, why: str) -> Settled | None:
        """Fail a step whose program has no valid signature, or whose outcome cannot be settled."""
        log.error("step refused", extra={"why": why})
        sent = time.monotonic()
        usage = lease.came_to or lease.used
        answer = retry_while_away(
            lambda: self._engine.attempts.refuse(lease.ref, lease.grant, why=why, usage=usage),
            lease,
        )
        return None if answer is None else Settled(answer, sent)

    def fail_unresolved(self, lease: Lease, why: str) -> Settled | None:
        """Fail a step whose references cannot be resolved."""
        work = self._engine.attempts.bare_work(lease.ref, lease.grant)
        reason = Reason(code=ReasonCode.FAILED_STEP, text=why, at=lease.grant.address)
        outcome = Outcome(word="failed", text=why, reason=reason, retryable=False)
        return self.settle(Held(lease, work, outcome, ()))

    def hand_back(
        self,
        lease: Lease,
        usage: Usage | None = None,
        look: Looked | None = None,
        *,
        why: str = "",
        owner: SessionRef | None = None,
    ) -> Settled | None:
        """Release an attempt for other workers without counting it as an attempt.

        `why` is the reason if the attempt was not cancelled. `owner` is the session that has the
        folder to itself, if that is another one.
        """
        why = why or str(lease.why)
        seen = look if lease.ours else None
        release = partial(
            self._engine.attempts.release, lease.ref, lease.grant, why=why, usage=usage
        )
        if seen is not None:  # a person may have changed the work before this attempt
            digest, changed = seen.digest(), seen.changed
            release = partial(
                release, digest=digest, changed=changed, worked=seen.work, owner=owner
            )
        log.info("step handed back", extra={"why": why})
        sent = time.monotonic()
        answer = retry_while_away(release, lease)
        return None if answer is None else Settled(answer.model_copy(update={"hints": ()}), sent)


def retry_while_away(call: Callable[[], T], lease: Lease) -> T | None:
    """Repeats a call until the store is reachable; returns its result, None if no longer owner."""
    while lease.ours:
        try:
            return call()
        except StoreAway:
            # The heartbeat thread notices an expired lease; a cancelled body may still be settled.
            time.sleep(RETRY_S)
    return None


def _log_end(work: Work, outcome: Outcome, answer: str) -> None:
    """Log the end of a step, but not of a quick one that succeeded: a line costs as much as it."""
    if not work.step.quick or outcome.word == "failed":
        fields = {"word": outcome.word, "verdict": outcome.verdict, "answer": answer}
        log.info("step settled", extra=fields)
