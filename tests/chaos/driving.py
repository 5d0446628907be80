"""Clients of the fleet under chaos: they submit, steer and answer, and note what they are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from app.engine import About
from app.errors import StoreAway
from app.keys import SessionRef
from app.outcomes import Outcome
from leadhand.client import Client
from leadhand.errors import ApiAway, ControlRefused, LeadhandError, RequestInvalid
from tests.chaos.load import Wanted
from tests.chaos.stack import Stack

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
    #: How often an answer to its question was taken; it may be once.
    answers: int = 0
    troubles: list[str] = field(default_factory=list)
    busy: bool = True


class Driver:
    """Lets sessions loose over some seconds, each from a thread of its own."""

    def __init__(self, stack: Stack, wanted: Sequence[Wanted], *, over_s: float) -> None:
        self._stack = stack
        self._began = time.monotonic()
        self._over_s = over_s
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
        wanted.cwd.mkdir(parents=True, exist_ok=True)
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
                return self._stack.engine.start(wanted.program, about, key=key).session

    def _admitted(self, one: Driven, document: dict[str, Any], key: str) -> str:
        """Submitted, once there is a worker at its place: a drained one is gone for a moment."""
        give_up = time.monotonic() + 60
        while True:
            try:
                return self._client(one).submit(document, key).id
            except RequestInvalid as refused:
                if "no worker is there" not in str(refused) or time.monotonic() > give_up:
                    raise
                time.sleep(0.5)

    # Steering

    def _steer(self, one: Driven, session: str) -> None:
        match one.wanted.steer:
            case "stop" | "stop twice":
                for _ in range(2 if one.wanted.steer == "stop twice" else 1):
                    self._stop_and_go(one, session)
            case "abort":
                self._try(lambda: self._client(one).abort(session, "by chaos"))
                self._rest(one, session)
            case "exit":
                self._try(lambda: self._client(one).exit(session, "by chaos"))
                self._rest(one, session)
            case _:
                self._race(one, session)

    def _stop_and_go(self, one: Driven, session: str) -> None:
        self._try(lambda: self._client(one).stop(session))
        rest = self._rest(one, session)
        time.sleep(1.0)
        rest.until = time.time()
        if rest.status == "stopped":
            self._try(lambda: self._client(one, 1).resume(session))

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

    def _rest(self, one: Driven, session: str) -> Rest:
        """Wait for the acknowledgement: the status that says that nothing runs any more."""
        give_up = time.monotonic() + 300
        while time.monotonic() < give_up:
            status = self._client(one).session(session).status
            if status in AT_REST:
                one.rests.append(Rest(status, time.time()))
                return one.rests[-1]
            if status in ("active", "waiting"):  # refused, or resumed by another
                break
            time.sleep(0.1)
        return Rest("", 0.0)

    # The end

    def _has_ended(self, one: Driven) -> bool:
        if one.busy or one.session is None:
            return not one.busy
        with suppress(ApiAway, StoreAway, ControlRefused):
            view = self._stack.engine.session(one.session)
            if view.status == "stopped":
                if one.rests:
                    one.rests[-1].until = time.time()
                self._stack.engine.control(one.session, "resume")
            if view.status == "waiting":
                self._answer(one, SessionRef(one.session, view.root))
            return view.status in ENDED
        return False

    def _answer(self, one: Driven, ref: SessionRef) -> None:
        """Two people answer at once."""
        record = self._stack.engine.store.steps(ref, ["ask"]).get("ask")
        if record is None or record.state != "parked":
            return
        words: list[str] = []

        def say(who: str) -> None:
            said = Outcome(word="succeeded", text=who)
            with suppress(StoreAway):
                answer = self._stack.engine.answer(ref, "ask", said, fence=record.fence, by=who)
                words.append(answer.word)

        people = [threading.Thread(target=say, args=(who,)) for who in ("me", "you")]
        for person in people:
            person.start()
        for person in people:
            person.join()
        one.answers += words.count("settled")
