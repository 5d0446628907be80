"""Locks are damaged at random and repaired: all sessions end, and no loop waits for itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from random import Random

import pytest

from app import shared
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, Step
from app.core.records import Grant
from app.sessions.submit import About
from tests.effort import seeds
from tests.engine.driving import Bench
from tests.engine.test_fsck import audit
from tests.engine.world import World

SIDE = Step(id="a", action=Action.CHECK, folder=True, needs=(), limits=("key:k",))
JUDGE = Step(id="judge", action=Action.JUDGE, needs=("a", "b"))
BODY = (SIDE, SIDE.model_copy(update={"id": "b", "limits": ()}), JUDGE)
SIDES = Program(body=(Loop(id="loop", body=BODY, max_iterations=3),))
FOLDER = "folder:here:/f"
FAR = 9e15


class Damaged:
    """Four sessions in overlapping folders, and random damage to the records of their locks."""

    def __init__(self, bench: Bench, seed: int, folders: Sequence[str]) -> None:
        self.random = Random(seed)
        self.world = World.of(bench)
        self.redis = bench.client()
        self.engine = self.world.engine
        self.keys = self.engine.store.keys
        abouts = [
            About(kind="loop", name="x", cwd=folder, folder=folder, place="here")
            for folder in folders
        ]
        started = [self.engine.submit.program(SIDES, about).session for about in abouts]
        self.refs = [SessionRef(id_, id_) for id_ in started]
        self.running: list[tuple[SessionRef, Grant]] = []
        shared.set_limit(self.engine, "key:k", concurrency=1)

    def work(self, rounds: int) -> None:
        """Workers take what they are told of, and some of them settle."""
        for _ in range(rounds):
            if self.world.hints:
                at = self.random.randrange(len(self.world.hints))
                self.claim(*self.world.hints.pop(at))
            if self.running and self.random.random() < 0.4:
                self.settle(self.random.randrange(len(self.running)))
            if self.random.random() < 0.2:
                self.world.later(self.random.choice((100, 2_000, 6_000)))

    def claim(self, ref: SessionRef, address: str) -> None:
        answer = self.world.claim(ref, address)
        if answer.word == "granted":
            self.running.append((ref, answer.grants[0]))
        elif answer.why == "lock":
            step = self.engine.store.steps(ref, [address])[address]
            holders = self.engine.store.fleet().holders(str(step.blocked))
            own = [one for one in holders if one == f"{ref.member}loop~1"]
            assert own == [], f"{address} waits for a lock of its own loop"

    def settle(self, at: int) -> None:
        ref, grant = self.running.pop(at)
        said = {}
        if grant.address.endswith("judge"):
            said = {"verdict": self.random.choice(("retry", "accept"))}
        answer = self.world.settle(
            ref, grant, Outcome.model_validate({"word": "succeeded", **said})
        )
        self.running += [(ref, next_) for next_ in answer.grants]

    def damage(self) -> None:
        ref = self.random.choice(self.refs)
        ways: list[Callable[[], object]] = [
            *(lambda key=key: self.redis.delete(self.keys.everywhere(key)) for key in
              ("holds", "tickets", "called", "waits")),
            lambda: self.redis.delete(self.keys.part(ref, "holding")),
            *(lambda key=key: self.drop_one(key) for key in ("holds", "tickets", "ready", "waits")),
            lambda: self.put_off("ready"),
            lambda: self.spoil_step(ref, "tickets"),
            lambda: self.spoil_step(ref, "waits"),
            lambda: self.spoil_step(ref, "blocked"),
            lambda: self.redis.zadd(
                self.keys.everywhere("holds"),
                {f"{FOLDER}<{ref.member}{self.random.choice(('loop~1', 'loop~1[1]', '', 'x'))}": 0},
            ),
            lambda: self.redis.hset(
                self.keys.everywhere("called"), f"{FOLDER}<{ref.member}loop~1[1]/a", -FAR
            ),
        ]  # fmt: skip
        self.random.choice(ways)()

    def drop_one(self, part: str) -> None:
        key = self.keys.everywhere(part)
        if part == "waits":
            names = sorted(self.redis.hkeys(key))
            if names:
                self.redis.hdel(key, self.random.choice(names))
            return
        lines = [str(line) for line in self.redis.zrange(key, 0, -1)]
        if lines:
            self.redis.zrem(key, self.random.choice(lines))

    def put_off(self, part: str) -> None:
        key = self.keys.everywhere(part)
        lines = [str(line) for line in self.redis.zrange(key, 0, -1)]
        if lines:
            self.redis.zadd(key, {self.random.choice(lines): FAR})

    def spoil_step(self, ref: SessionRef, field: str) -> None:
        key = self.keys.part(ref, "steps")
        for address, text in sorted(self.redis.hgetall(key).items()):
            record = json.loads(text)
            if record.pop(field, None) is not None:
                self.redis.hset(key, address, json.dumps(record))
                return

    def end(self) -> None:
        """A repair, sweeps and workers bring each session to its end."""
        audit(self.engine.audit.run, repair=True)
        left = [f"{one.kind}: {one.what}" for one in audit(self.engine.audit.run).items]
        assert [one for one in left if not one.startswith("owner_double")] == []
        for _ in range(80):
            self.world.later(16_000)
            while self.world.hints or self.running:
                if self.world.hints:
                    self.claim(*self.world.hints.pop(0))
                if self.running:
                    self.settle(0)
        states = {self.engine.queries.session(ref.id).status for ref in self.refs}
        assert states <= {"completed", "failed"}, [
            wait.text for ref in self.refs for wait in self.engine.explainer.explain(ref.id).waits
        ]
        assert [lock for lock in self.redis.zrange("lh:holds", 0, -1) if "folder:" in lock] == []


@pytest.mark.no_cover
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "folders", [("/f",) * 4, ("/f", "/f/sub", "/", "/f/sub/x")], ids=["one", "nested"]
)
@pytest.mark.parametrize("seed", seeds(range(24), few=8))
def test_damaged_locks_are_repaired_and_everything_ends(
    bench: Bench, seed: int, folders: Sequence[str]
) -> None:
    damaged = Damaged(bench, seed, folders)
    for _ in range(damaged.random.choice((1, 2, 4))):
        damaged.work(rounds=damaged.random.randrange(2, 25))
        damaged.damage()
    damaged.end()
