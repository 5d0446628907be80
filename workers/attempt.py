"""One attempt at a step, from claim to settle, and the quick steps that it may go on with."""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import NamedTuple

from app import capabilities
from app.engine import Engine
from app.errors import (
    ReferenceUnresolved,
    SessionUnknown,
    SpecForeign,
    StoreAway,
)
from app.keys import SessionRef
from app.logs import about
from app.outcomes import Outcome
from app.program import Action, iteration_of
from app.reasons import ReasonCode
from app.records import Answer, Hint
from app.working import Work
from tasks import tracing
from workers import environment
from workers.agents.book import AgentBook
from workers.body import BodyTask, run_body
from workers.checkers.checks import QuickCheck, quick_check
from workers.hush import secrets_of
from workers.lease import WAIT_S, Heart, Lease
from workers.looking import Look, is_looked_at, look_at
from workers.parking import park
from workers.roots import outside
from workers.settling import Held, Settled, Settler, patiently
from workers.shelf import Shelf
from workers.spills import folder_of
from workers.warm import Call, Calls, Row, Warm

log = logging.getLogger(__name__)

#: A sticky stretch goes on for at most so many steps, or so many seconds.
STRETCH_STEPS = 50
STRETCH_S = 1.0
#: How many quick steps one worker process has in hand. Those that wait for the one before them are
#: held meanwhile, and handed back where that one is slow.
TAKE = 4
#: A step that waits is begun within so many seconds of its grant, or not in a row: it is handed
#: back a moment later, and then it must not run.
BEGIN_S = WAIT_S * 0.8

_FALSY = (None, False, "", 0, "false", "no", "0")


class _Asked(NamedTuple):
    """A quick check that was asked for with those beside it; they are settled together, too."""

    work: Work
    body: QuickCheck


#: By their addresses.
_Abreast = Mapping[str, _Asked]


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
        self._settler = Settler(engine, worker=worker, secrets=self._secrets)

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
            leases = self._side_by_side(ref, todo)
            steps += len(leases)
            tired = steps + len(todo) >= STRETCH_STEPS or time.monotonic() - begun > STRETCH_S
            room = 0 if tired or self._draining() else max(0, TAKE - len(todo))
            take = room // len(leases)  # for each of them
            for settled in self._carried_out(ref, leases, take):
                hints += settled.answer.hints
                todo.extend(self._kept(ref, settled))
        return hints

    def _side_by_side(self, ref: SessionRef, todo: deque[Lease]) -> list[Lease]:
        """What is next, with all that follows and can be called in one row with it."""
        leases = [todo.popleft()]
        if not todo or tracing.is_on() or not self._is_quick_check(ref, leases[0]):
            return leases
        while todo and self._is_quick_check(ref, todo[0]):
            leases.append(todo.popleft())
        return leases

    def _is_quick_check(self, ref: SessionRef, lease: Lease) -> bool:
        try:
            step = self._engine.step(ref, lease.grant.address)
        except Exception:  # noqa: BLE001 - whoever carries it out says what is wrong
            return False
        return step.quick and step.action is Action.CHECK and step.when is None

    def _carried_out(
        self, ref: SessionRef, leases: Sequence[Lease], take: int
    ) -> Iterator[Settled]:
        if len(leases) > 1:
            yield from self._abreast(ref, leases, take)
            return
        came = self._in_turn(ref, leases[0], take)
        if isinstance(came, Settled):
            yield came

    def _abreast(self, ref: SessionRef, leases: Sequence[Lease], take: int) -> Iterator[Settled]:
        """Checks side by side, in fewer round trips: all are asked for before the first answers.

        Each has its own lease, outcome and settle all the same, and none waits for one that is
        slow: what is done by then is settled first.
        """
        held: list[Held] = []
        try:
            with self._warm.row() as row:
                abreast = self._asked(ref, leases, row)
                for lease in leases:
                    self._heart.begin(lease)  # its call may be: the one before it was answered
                    if held and not row.soon():
                        yield from self._settler.settle_all(held)
                        held.clear()
                    came = self._in_turn(ref, lease, take, abreast)
                    if isinstance(came, Held):
                        held.append(came)
                    elif came is not None:
                        yield came
            yield from self._settler.settle_all(held)
        finally:
            for lease in leases:
                self._heart.let_go(lease)

    def _asked(self, ref: SessionRef, leases: Sequence[Lease], row: Row) -> _Abreast:
        """Ask for as many of them as can be read at once; the others are called by themselves."""
        abreast: dict[str, _Asked] = {}
        calls: list[Call] = []
        for lease in leases:
            try:
                work = self._engine.work(ref, lease.grant)
                body = quick_check(self._task(work, lease, row))
            except Exception:  # noqa: BLE001 - whoever carries it out says what is wrong
                break
            if body is None or (calls and body.call.where != calls[0].where):
                break
            abreast[lease.grant.address] = _Asked(work, body)
            calls.append(body.call)
        row.send(calls, begin_by=min(lease.since for lease in leases) + BEGIN_S)
        return abreast

    def _kept(self, ref: SessionRef, settled: Settled) -> list[Lease]:
        """What a settle granted, kept from now on: one may wait for the one before it."""
        grants = settled.answer.grants
        return [self._heart.keep(ref, grant, sent=settled.sent) for grant in grants]

    def _in_turn(
        self, ref: SessionRef, lease: Lease, take: int, abreast: _Abreast | None = None
    ) -> Settled | Held | None:
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
                    return self._settler.hand_back(lease) if lease.ours else None
                carry_out = partial(self._carry_out, ref, lease, take, abreast)
                return self._settler.whatever_breaks(lease, carry_out)
        finally:
            if abreast is None:
                self._heart.let_go(lease)

    def _carry_out(
        self, ref: SessionRef, lease: Lease, take: int, abreast: _Abreast | None
    ) -> Settled | Held | None:
        """The body and its settle; None where the step is no longer ours."""
        asked = abreast.get(lease.grant.address) if abreast is not None else None
        try:
            work = asked.work if asked is not None else self._work(ref, lease)
        except ReferenceUnresolved as error:
            return self._settler.unread(lease, str(error))
        except SpecForeign as error:
            return self._settler.refuse(lease, str(error))
        if work is None:
            return None
        moved = self._waits_for_another_lock(work, lease)
        if moved is not None:
            return moved
        _tell_of_its_begin(work)
        look = self._look(work, lease) if abreast is None else None
        outcome = self._outcome(work, lease, asked.body if asked is not None else None)
        if outcome is None:
            return None
        lease.came_to = outcome.usage
        if _was_ended(outcome, lease):
            return self._settler.hand_back(lease, outcome.usage, look)
        nonces = [next(self._nonces) for _ in range(take)]
        if abreast is not None:
            return Held(lease, work, outcome, nonces)
        return self._settler.settle(Held(lease, work, outcome, nonces), look)

    def _work(self, ref: SessionRef, lease: Lease) -> Work | None:
        return patiently(lambda: self._engine.work(ref, lease.grant), lease)

    def _look(self, work: Work, lease: Lease) -> Look | None:
        """How the folder is that somebody is about to work in."""
        if not is_looked_at(work) or outside(work, self._engine.settings) is not None:
            return None
        left = patiently(lambda: self._engine.left(work.ref), lease)
        return None if left is None else look_at(work, left, Path(self._engine.settings.spill))

    def _waits_for_another_lock(self, work: Work, lease: Lease) -> Settled | None:
        """Two names of one folder are one lock: the attempt, handed back to wait for that one."""
        folder = work.locks_another
        if folder is None:
            return None
        sent = time.monotonic()
        answer = patiently(lambda: self._engine.move_lock(work, folder), lease)
        if answer is None or answer.word == "kept":
            return None
        log.info("step waits for its folder's own lock", extra={"folder": str(folder)})
        return Settled(answer.model_copy(update={"hints": ()}), sent)

    def _outcome(self, work: Work, lease: Lease, body: QuickCheck | None) -> Outcome | None:
        """What came of the body; None where the step waits for something and is parked."""
        if _passed_over(work):
            return Outcome(word="skipped")
        if work.step.action in (Action.HUMAN, Action.WAIT, Action.CHILD):
            return patiently(lambda: park(self._engine, work, self._secrets()), lease)
        nowhere = outside(work, self._engine.settings)
        task = self._task(work, lease, self._warm) if body is None else body.task
        return nowhere or run_body(task, lease.ended, body and body.outcome)

    def _task(self, work: Work, lease: Lease, warm: Calls) -> BodyTask:
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
            warm=warm,
            shelf=self._shelf,
            conversation=work.step.conversation,
            thread=grant.thread,
            earlier=partial(self._engine.said, work.ref),
            failure=grant.failure,
            on_spent=lease.spent,
        )

    def _secrets(self) -> frozenset[str]:
        return secrets_of(self._agents(), self._inherited)


def _nonces() -> Iterator[str]:
    """Words that no other process uses, nor this one twice. They are no secrets."""
    mine = secrets.token_hex(6)
    return (f"{mine}-{number}" for number in count(1))


def _tell_of_its_begin(work: Work) -> None:
    if not work.step.quick:
        log.info("step begun", extra={"action": work.step.action.value})


def _was_ended(outcome: Outcome, lease: Lease) -> bool:
    """Whether the body was ended before it was done: what it had done by then counts for nothing.

    A body that was done first has its outcome recorded, whatever was asked of it meanwhile.
    """
    reason = outcome.reason
    cancelled = reason is not None and reason.code is ReasonCode.CANCELLED
    return cancelled and lease.why is not None


def _passed_over(work: Work) -> bool:
    """Whether the step's condition does not hold."""
    if work.step.when is None:
        return False
    value = work.inputs.get("when")
    return value in _FALSY or value == [] or value == {}
