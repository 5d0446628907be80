"""Random walks over the named locks of a tree, compared with a plain model after each call."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

import pytest

from app.core.addresses import SessionRef
from app.core.program import Program
from app.core.records import Grant, Reply
from tests.engine.driving import LEASE_MS, Bench, Drive, program, step

CALLS = 60
FEW, ALL = range(16), range(16, 120)
NAMES = ("x", "src/app.py")
LAPSE_MS = 10_000
ROOT = "aaaaaaaa"


class Owner(NamedTuple):
    """An attempt or a session (without address) that wants a lock, and the id of this holder."""

    session: str
    address: str
    attempt: int
    nonce: str


@dataclass
class Held:
    owner: Owner
    until: int
    fence: int


@dataclass
class Lock:
    """A lock as the model knows it."""

    held: Held | None = None
    #: Those who wait, and when each asked last.
    line: list[tuple[Owner, int]] = field(default_factory=list)
    #: The last release, and when it was.
    last: tuple[Owner, int] | None = None


@dataclass
class Walk:
    """Two sessions of one tree, and what their locks have to be."""

    bench: Bench
    random: Random
    drives: dict[str, Drive] = field(default_factory=dict)
    running: dict[tuple[str, str], Grant] = field(default_factory=dict)
    locks: dict[str, Lock] = field(default_factory=lambda: {name: Lock() for name in NAMES})
    owners: list[Owner] = field(default_factory=list)
    fence: int = 0
    nonces: int = 0

    # What the sessions do

    def claim(self) -> None:
        drive = self._any()
        ready = drive.ready() if drive.status == "active" else []
        if ready:
            address = self.random.choice(ready)
            answer = drive.claim(address)
            if answer.word == "granted":
                self.running[drive.ref.id, address] = answer.grants[0]

    def end_attempt(self) -> None:
        if not self.running:
            return
        session, address = self.random.choice(sorted(self.running))
        grant, drive = self.running.pop((session, address)), self.drives[session]
        if self.random.random() < 0.5:
            drive.release(grant)
        else:
            drive.settle(grant, "failed")
        self._free(lambda one: (one.session, one.address) == (session, address))

    def lose(self) -> None:
        """All attempts miss their heartbeats, and the sweep reassigns them."""
        self.bench.tick(LEASE_MS / 1000 + 11)
        for member in self.bench.due().leases:
            session, _, address = member.split("|", 2)
            self.drives[session].expire(address)
        self.running.clear()
        self._free(lambda one: one.address != "")

    def stop_and_resume(self) -> None:
        drive = self._any()
        if drive.status != "active":
            return
        drive.control("stop")
        for session, address in sorted(self.running):
            if session == drive.ref.id:
                drive.release(self.running.pop((session, address)), why="stop")
        assert drive.status == "stopped"
        self._free(lambda one: one.session == drive.ref.id)
        drive.control("resume")

    def sweep(self) -> None:
        """Carry out the commands of the outbox that are due."""
        for errand in self.bench.due().errands:
            verb, _, root, name = errand.split("|")
            if verb == "lock":
                self._any().run("tree_look", {"lock": f"lock:{root}:{name}"})
        holders = {line for line in self._holds() if line.startswith("lock:")}
        named = {name for name, lock in self.locks.items() if self._holder(lock)}
        assert {line.partition("<")[0].removeprefix(f"lock:{ROOT}:") for line in holders} == named

    # What is asked of the locks

    def ask(self) -> None:
        """A new holder wants a lock."""
        session = self.random.choice(sorted(self.drives))
        attempts = [(s, a, g.fence) for (s, a), g in self.running.items() if s == session]
        chosen = self.random.choice([(session, "", 0), *attempts, *attempts])
        self.nonces += 1
        owner = Owner(*chosen, f"n{self.nonces}")
        self.owners.append(owner)
        self._ask(owner, self.random.choice(NAMES), queue=self.random.random() < 0.8)

    def ask_again(self) -> None:
        """A waiter asks again, a holder renews by asking, or one comes that has ended long ago."""
        if self.owners:
            owner = self.random.choice(self.owners[-8:])
            self._ask(owner, self.random.choice(NAMES), queue=self.random.random() < 0.9)

    def renew(self) -> None:
        if not self.owners:
            return
        owner, name = self.random.choice(self.owners[-8:]), self.random.choice(NAMES)
        lock, ttl = self.locks[name], self._ttl()
        held = self._holder(lock)
        fence = held.fence if held else self.fence
        fence -= self.random.choice([0, 0, 1])
        answer = self._run(owner, name, ttl, fence=fence)
        if not self._may_call(owner):
            assert answer.word in ("superseded", "ended")
        elif held and held.owner == owner and held.fence == fence:
            assert answer.word == "held"
            held.until = self.bench.clock.now + ttl
        else:
            assert answer.word == "lost"

    def release(self) -> None:
        if not self.owners:
            return
        owner, name = self.random.choice(self.owners[-8:]), self.random.choice(NAMES)
        lock = self.locks[name]
        for _ in range(self.random.choice([1, 2])):  # the reply of the first call was lost
            held = self._holder(lock)
            if held and held.owner[:2] == owner[:2] and held.owner.nonce == owner.nonce:
                lock.held, lock.last = None, (held.owner, self.bench.clock.now)
            lock.line = [one for one in lock.line if one[0] != owner]
            arguments = {"name": name, "nonce": owner.nonce, "address": owner.address or None}
            answer = self.drives[owner.session].run("tree_unlock", arguments)
            assert answer.word == ("released" if self._is_last(lock, owner) else "gone")

    # What must hold

    def check(self) -> None:
        ended = [name for name, drive in self.drives.items() if drive.status != "active"]
        self._free(lambda one: one.session in ended)
        stored = self.bench.redis.hgetall(self.bench.store.keys.everywhere("named"))
        now = self.bench.clock.now
        for name, lock in self.locks.items():
            record = json.loads(stored.get(f"lock:{ROOT}:{name}", "{}"))
            holder = record.get("holder")
            if holder and holder["until"] <= now:
                holder = None
            held = self._holder(lock)
            found = holder and (holder["who"], holder["nonce"], holder["until"], holder["fence"])
            expected = held and (_who(held.owner), held.owner.nonce, held.until, held.fence)
            assert found == expected, name
            self._check_holds(name, held)
        watched = {one for one in self.bench.scores("errands") if one.startswith("lock|")}
        names = [lock.removeprefix(f"lock:{ROOT}:") for lock in stored]
        assert watched == {f"lock|{ROOT}|{ROOT}|{name}" for name in names}

    def _check_holds(self, name: str, held: Held | None) -> None:
        lines = [line for line in self._holds() if line.startswith(f"lock:{ROOT}:{name}<")]
        assert len(lines) <= 1
        if held is not None:
            assert lines == [f"lock:{ROOT}:{name}<{_who(held.owner)}"]
            holding = self.bench.redis.smembers(self.drives[held.owner.session].key("holding"))
            assert lines[0] in holding

    # The model

    def _ask(self, owner: Owner, name: str, *, queue: bool) -> None:
        lock, ttl = self.locks[name], self._ttl()
        answer = self._run(owner, name, ttl, queue=queue or None)
        now, held = self.bench.clock.now, self._holder(lock)
        if not self._may_call(owner):
            assert answer.word in ("superseded", "ended")
            return
        lock.line = [(one, seen) for one, seen in lock.line if self._waits(one, seen)]
        before = [one for one, _ in lock.line]
        place = before.index(owner) if owner in before else len(before)
        if held and held.owner == owner:
            assert (answer.word, answer.record and answer.record.holder) != ("held", None)
            held.until = now + ttl
        elif self._is_last(lock, owner):
            assert answer.word == "lost"
        elif held is None and place == 0:
            assert answer.word == "held"
            assert answer.record is not None
            assert answer.record.holder is not None
            fence = answer.record.holder.fence or 0
            assert fence > self.fence
            self.fence = fence
            lock.held = Held(owner, now + ttl, fence)
            lock.line = lock.line[1:] if owner in before else lock.line
        elif queue:
            assert (answer.word, answer.before) == ("waiting", place)
            if owner in before:
                lock.line[place] = (owner, now)
            else:
                lock.line.append((owner, now))
        else:
            assert answer.word == "taken"
            lock.line = [one for one in lock.line if one[0] != owner]

    def _run(self, owner: Owner, name: str, ttl: int, **more: Any) -> Reply:
        arguments: dict[str, Any] = {"name": name, "nonce": owner.nonce, "ttl_ms": ttl, "by": "ann"}
        if owner.address:
            arguments |= {"address": owner.address, "attempt": owner.attempt}
        return self.drives[owner.session].run("tree_lock", arguments | more)

    def _ttl(self) -> int:
        return self.random.choice([1000, 3000, 20_000])

    def _holder(self, lock: Lock) -> Held | None:
        if lock.held is not None and lock.held.until <= self.bench.clock.now:
            lock.held = None
        return lock.held

    def _is_last(self, lock: Lock, owner: Owner) -> bool:
        if lock.last is None or self.bench.clock.now - lock.last[1] > LAPSE_MS:
            return False
        return lock.last[0][:2] == owner[:2] and lock.last[0].nonce == owner.nonce

    def _may_call(self, owner: Owner) -> bool:
        if self.drives[owner.session].status != "active":
            return False
        grant = self.running.get((owner.session, owner.address))
        return not owner.address or (grant is not None and grant.fence == owner.attempt)

    def _waits(self, owner: Owner, seen: int) -> bool:
        is_there = not owner.address or self._may_call(owner)
        return self.bench.clock.now - seen <= LAPSE_MS and is_there

    def _free(self, is_over: Callable[[Owner], bool]) -> None:
        for lock in self.locks.values():
            if lock.held is not None and is_over(lock.held.owner):
                lock.held = None

    def _any(self) -> Drive:
        return self.drives[self.random.choice(sorted(self.drives))]

    def _holds(self) -> list[str]:
        return list(self.bench.redis.zrange(self.bench.store.keys.everywhere("holds"), 0, -1))


def _who(owner: Owner) -> str:
    return f"{owner.session}|{ROOT}|{owner.address}"


def steps() -> Program:
    return program(*(step(name, needs=(), retries=100, critical=False) for name in "abc"))


def walk(bench: Bench, seed: int) -> None:
    bench.restart()
    one = Walk(bench, Random(seed))
    one.drives[ROOT] = bench.start(steps(), name=ROOT)
    one.drives["bbbbbbbb"] = Drive(bench, SessionRef("bbbbbbbb", ROOT), one.drives[ROOT].program)
    assert one.drives["bbbbbbbb"].create(nonce="another").word == "created"
    calls: list[Any] = [
        one.claim, one.claim, one.claim, one.end_attempt, one.end_attempt, one.lose,
        one.stop_and_resume, one.sweep, one.sweep, one.ask, one.ask, one.ask, one.ask,
        one.ask_again, one.ask_again, one.ask_again, one.ask_again, one.renew, one.renew,
        one.release, one.release,
    ]  # fmt: skip
    for _ in range(CALLS):
        one.random.choice(calls)()
        bench.tick(one.random.choice([0, 0, 1, 4, 11]))
        one.check()
    bench.tick(60)
    one.sweep()
    assert not bench.redis.exists(bench.store.keys.everywhere("named"))


def test_named_locks_are_as_the_model_says_after_each_call(bench: Bench):
    for seed in FEW:
        walk(bench, seed)


def test_waiter_of_an_attempt_that_has_ended_keeps_no_other_back(bench: Bench):
    drive = bench.start(steps())
    grant = drive.take("a")
    wanted = {"name": "x", "ttl_ms": 1000, "by": "ann", "queue": True}
    theirs = {"nonce": "theirs", "address": "a", "attempt": grant.fence}
    assert drive.run("tree_lock", wanted | {"nonce": "first"}).word == "held"
    assert drive.run("tree_lock", wanted | theirs).word == "waiting"
    drive.release(grant)
    bench.tick(1)
    assert drive.run("tree_lock", wanted | {"nonce": "second"}).word == "held"


def test_only_the_newest_grant_of_a_holder_is_renewed(bench: Bench):
    drive = bench.start(steps())
    wanted = {"name": "x", "ttl_ms": 1000, "by": "ann", "nonce": "n"}
    for fence in (1, 2):
        answer = drive.run("tree_lock", wanted)
        assert (
            answer.word,
            answer.record and answer.record.holder and answer.record.holder.fence,
        ) == ("held", fence)
        bench.tick(1)
    assert drive.run("tree_lock", wanted).word == "held"
    assert drive.run("tree_lock", wanted | {"fence": 2}).word == "lost"
    assert drive.run("tree_lock", wanted | {"fence": 3}).word == "held"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_named_locks_are_as_the_model_says_after_each_call_of_many_walks(bench: Bench):
    for seed in ALL:
        walk(bench, seed)
