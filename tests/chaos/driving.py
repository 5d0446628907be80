"""Clients of the fleet under chaos: they submit, steer and answer, and note what they are told."""

from __future__ import annotations

import math
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from app.core.records import StepRecord
from app.errors import ParentRests
from app.sessions.submit import About
from leadhand.client.client import Client
from leadhand.errors import ApiAway, ControlRefused, LeadhandError, RequestInvalid, StoreAway
from leadhand.models.documents import Budget, LoopDocument
from tests.chaos.load import Wanted
from tests.chaos.merge_load import MERGED, make_user_repository
from tests.chaos.stack import Stack
from tests.unit.workers.folders.repositories import user_state

#: A session that is one of these has ended, or is at rest.
AT_REST = ("completed", "failed", "exited", "aborted", "stopped")
ENDED = AT_REST[:-1]


@dataclass
class Rest:
    """A client read that a session is at rest; until it asked for more, nothing may begin."""

    status: str
    since: float
    until: float | None = None


@dataclass
class Driven:
    """One session that somebody asked for."""

    wanted: Wanted
    session: str | None = None
    rests: list[Rest] = field(default_factory=list)
    #: Of each question, by session, address and fence: whose answers were taken; one may be.
    answers: dict[tuple[str, str, int], list[str]] = field(default_factory=dict)
    #: Whether it was sent back to an earlier point.
    sent_back: bool = False
    #: Whether it was stopped with nothing left of its budget, and then aborted.
    spent: bool = False
    troubles: list[str] = field(default_factory=list)
    busy: bool = True


class Driver:
    """Lets sessions loose over some seconds, each from a thread of its own."""

    def __init__(self, stack: Stack, wanted: Sequence[Wanted], *, over_s: float) -> None:
        self._stack = stack
        self._began = time.monotonic()
        self._over_s = over_s
        self._folders = threading.Lock()
        #: The state of each user's repository before its session, by the session's number.
        self.before: dict[int, dict[str, str]] = {}
        self.driven = [Driven(one) for one in wanted]
        self._threads = [
            threading.Thread(target=self._drive, args=(one,), daemon=True) for one in self.driven
        ]

        self._threads.append(threading.Thread(target=self._settle, daemon=True))
        self.left = len(self.driven)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def _settle(self) -> None:
        """Resume what was left stopped, and answer what was left open, until all have ended."""
        while self.left:
            self.left = sum(not self._has_ended(one) for one in self.driven)
            time.sleep(0.3)

    def _drive(self, one: Driven) -> None:
        share = one.wanted.number / max(1, len(self.driven))
        time.sleep(max(0.0, self._began + share * self._over_s - time.monotonic()))
        try:
            one.session = self._submit(one)
            if one.wanted.spawns is not None:
                self._spawn(one.wanted.spawns, SessionRef(one.session, one.session))
            if one.wanted.steer is not None:
                time.sleep(one.wanted.steer_after_s)
                self._steer(one, one.session)
        except LeadhandError as error:
            one.troubles.append(f"{type(error).__name__}: {error}")
        finally:
            one.busy = False

    def _client(self, one: Driven, other: int = 0) -> Client:
        clients = self._stack.clients
        return clients[(one.wanted.number + other) % len(clients)]

    def _submit(self, one: Driven) -> str:
        wanted = one.wanted
        self._make_folder(wanted)
        key = f"chaos {wanted.number}"
        if wanted.document is not None:
            session = self._admitted(one, wanted.document, key)
            if wanted.number % 5 == 0:  # the same key again, at the other API
                again = self._client(one, 1).submit(wanted.document, key).id
                if again != session:
                    one.troubles.append(f"one key, two sessions: {session} and {again}")
            return session
        assert wanted.program is not None
        about = About(
            "loop", "by hand", cwd=str(wanted.cwd), place=wanted.place, folder=str(wanted.cwd)
        )
        while True:
            with suppress(StoreAway):
                return self._stack.engine.submit.program(wanted.program, about, key=key).session

    def _make_folder(self, wanted: Wanted) -> None:
        with self._folders:
            wanted.cwd.mkdir(parents=True, exist_ok=True)
            if wanted.kind == MERGED:
                make_user_repository(wanted.cwd)
                self.before[wanted.number] = user_state(wanted.cwd)
                return
            if wanted.git and not (wanted.cwd / ".git").exists():
                subprocess.run(["git", "init", "--quiet"], cwd=wanted.cwd, check=True)

    def _admitted(self, one: Driven, document: dict[str, Any], key: str) -> str:
        """Submitted, once there is a worker at its place: a drained one is gone for a moment."""
        give_up = time.monotonic() + 60
        while True:
            try:
                return self._client(one).submit(document, key).id
            except RequestInvalid as refused:
                if "no worker is at this place" not in str(refused) or time.monotonic() > give_up:
                    raise
                time.sleep(0.5)

    def _spawn(self, document: dict[str, Any], ref: SessionRef) -> None:
        """Start a session below whatever step of it works; it may end before that."""
        engine, child = self._stack.engine, LoopDocument.model_validate(document)
        give_up = time.monotonic() + 20
        while time.monotonic() < give_up:
            running = [one for one in self._steps(ref).items() if one[1].state == "running"]
            for address, step in running:
                with suppress(StoreAway, ParentRests):
                    engine.submit.document(
                        child, idempotency_key=f"{ref.id}:{address}:{step.fence}", root=ref.root,
                        parent={"session": ref.id, "address": address, "fence": step.fence,
                                "base": engine.store.keys.base(ref)},
                    )  # fmt: skip
                    return
            time.sleep(0.2)

    # Steering

    def _steer(self, one: Driven, session: str) -> None:
        match one.wanted.steer:
            case "stop" | "stop twice":
                for _ in range(2 if one.wanted.steer == "stop twice" else 1):
                    self._stop_and_go(one, session)
            case "back":
                self._stop_and_go(one, session, back=True)
            case "raise":
                self._rest(one, session, by_itself=True).until = time.time()
                more = Budget(iterations=1000, steps=1000)
                self._try(lambda: self._client(one).resume(session, budget=more))
            case "abort":
                self._try(lambda: self._client(one).abort(session, "by chaos"))
                self._rest(one, session)
            case "exit":
                self._try(lambda: self._client(one).exit(session, "by chaos"))
                self._rest(one, session)
            case _:
                self._race(one, session)

    def _stop_and_go(self, one: Driven, session: str, *, back: bool = False) -> None:
        self._try(lambda: self._client(one).stop(session))
        rest = self._rest(one, session)
        time.sleep(1.0)
        rest.until = time.time()
        if back and rest.status in ("stopped", "failed"):
            one.sent_back = self._send_back(one, session)
        if rest.status == "stopped" and not one.sent_back:
            self._try(lambda: self._client(one, 1).resume(session))

    def _send_back(self, one: Driven, session: str) -> bool:
        """Let it go on after something that it has done; whether it does."""
        ref = SessionRef(session, session)
        steps = self._steps(ref)
        done = sorted(a for a, step in steps.items() if step.state == "succeeded")
        rng = Random(one.wanted.number)
        for address in rng.sample(done, min(3, len(done))):
            # It was led to somewhere that nothing can follow, or is no longer the newest there.
            with suppress(ControlRefused, RequestInvalid):
                self._client(one, 1).resume(session, after=address)
                return True
        return False

    def _steps(self, ref: SessionRef) -> dict[str, StepRecord]:
        while True:
            with suppress(StoreAway):
                store = self._stack.engine.store
                return store.steps(ref, store.names(ref, "steps"))

    def _race(self, one: Driven, session: str) -> None:
        """Everybody at once; there may be one winner at a time, and the session has to end."""
        here, there = self._client(one), self._client(one, 1)
        calls: list[Callable[[], object]] = [
            lambda: here.stop(session), lambda: there.resume(session),
            lambda: there.abort(session, "by chaos"), lambda: here.exit(session, "by chaos"),
            lambda: there.stop(session),
        ]  # fmt: skip
        threads = [threading.Thread(target=self._try, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        rest = self._rest(one, session)
        rest.until = time.time()

    def _try(self, call: Callable[[], object]) -> None:
        with suppress(ControlRefused):
            call()

    def _rest(self, one: Driven, session: str, *, by_itself: bool = False) -> Rest:
        """Wait for the acknowledgement: the status that says that nothing runs any more.

        One that ends `by_itself` may wait for its folder first: how long, the run limits.
        """
        give_up = time.monotonic() + (math.inf if by_itself else 300)
        while time.monotonic() < give_up:
            status = self._client(one).session(session).status
            if status in AT_REST:
                one.rests.append(Rest(status, time.time()))
                return one.rests[-1]
            if status in ("active", "waiting") and not by_itself:  # refused, or resumed by another
                break
            time.sleep(0.1)
        return Rest("", 0.0)

    # The end

    def _has_ended(self, one: Driven) -> bool:
        if one.busy or one.session is None:
            return not one.busy
        with suppress(ApiAway, StoreAway, ControlRefused):
            view = self._stack.engine.queries.session(one.session)
            if view.status == "stopped":
                if one.rests:
                    one.rests[-1].until = time.time()
                self._go_on(one, one.session)
            if view.status == "waiting":
                self._answer_all(one, SessionRef(one.session, view.root))
            return view.status in ENDED
        return False

    def _go_on(self, one: Driven, session: str) -> None:
        """Resume it; what was stopped with nothing left of its budget goes no further."""
        try:
            self._stack.engine.control.apply(session, "resume")
        except ControlRefused:
            with suppress(ControlRefused):
                one.spent = True
                self._stack.engine.control.apply(session, "abort")

    def _answer_all(self, one: Driven, ref: SessionRef) -> None:
        """Whatever it asks, and whatever those below it ask."""
        store = self._stack.engine.store
        program = self._stack.engine.registry.program(store.fields(ref)["program"])
        for address, step in store.steps(ref, store.members(ref, "parked")).items():
            if step.state == "parked" and program.step(address).action is Action.HUMAN:
                self._answer(one, ref, address, step.fence)
        for child in store.children(ref):
            self._answer_all(one, SessionRef(child, ref.root))

    def _answer(self, one: Driven, ref: SessionRef, address: str, fence: int) -> None:
        """Two people answer at once."""
        taken = one.answers.setdefault((ref.id, address, fence), [])

        def say(who: str) -> None:
            said = Outcome(word="succeeded", text=who)
            with suppress(StoreAway):
                answer = self._stack.engine.answers.settle(ref, address, said, fence=fence, by=who)
                if answer.word == "settled":
                    taken.append(who)

        people = [threading.Thread(target=say, args=(who,)) for who in ("me", "you")]
        for person in people:
            person.start()
        for person in people:
            person.join()
