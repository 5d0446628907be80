"""Random work, control and limits: each session ends."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from app import shared
from app.core.addresses import SessionRef
from app.core.records import Grant
from app.core.states import Control
from leadhand.errors import ControlRefused
from tests.engine.locks.sessions import BOTH, items, taken
from tests.engine.test_fsck import audit
from tests.engine.world import World


class Unrest:
    """Sessions with one limit: hints are lost, sessions stopped, and the limit changed."""

    def __init__(self, world: World, seed: int) -> None:
        self.world, self.rng = world, random.Random(seed)
        self.refs = [self.session() for _ in range(4)]
        self.at_work: list[tuple[SessionRef, Grant]] = []

    def session(self) -> SessionRef:
        width, priority = self.rng.choice([1, 20, 40]), self.rng.choice([0, 5])
        keys = self.rng.choice([("key:k",), ("key:m",), BOTH])
        return items(self.world, width, priority=priority, keys=keys)

    def work(self) -> None:
        self.at_work += taken(self.world)
        for ref, grant in self.rng.sample(self.at_work, k=-(-len(self.at_work) // 2)):
            self.at_work.remove((ref, grant))
            if self.rng.random() < 0.2:
                self.world.engine.attempts.release(ref, grant, why="drain")
            else:
                self.world.settle(ref, grant)

    def steer(self) -> None:
        self.tell(self.rng.choice(self.refs), self.rng.choice(["stop", "resume"]))

    def tell(self, ref: SessionRef, verb: Control) -> None:
        with suppress(ControlRefused):
            self.world.engine.control.apply(ref.id, verb)

    def limit(self) -> None:
        most, pace = self.rng.choice([None, 1, 3]), self.rng.choice([30.0, 600.0])
        shared.set_limit(
            self.world.engine, self.rng.choice(BOTH), concurrency=most, per_minute=pace
        )

    def unlimit(self) -> None:
        shared.remove_limit(self.world.engine, self.rng.choice(BOTH))

    def lose(self) -> None:
        self.world.hints.clear()

    def pause(self) -> None:
        for ref, grant in self.at_work:
            self.world.settle(ref, grant)
        self.at_work.clear()
        self.world.later(self.rng.choice([1_000, 40_000]))

    def act(self) -> None:
        acts = (self.work, self.work, self.steer, self.limit, self.unlimit, self.lose, self.pause)
        self.rng.choice(acts)()

    def all_done(self) -> bool:
        for _ in range(20):
            self.work()
            self.world.later(1_000)
        statuses = [self.world.engine.queries.session(ref.id).status for ref in self.refs]
        return set(statuses) <= {"completed", "aborted"}


@pytest.mark.parametrize("seed", range(3))
def test_nobody_waits_for_a_limit_for_ever_whatever_happens(world: World, seed: int) -> None:
    unrest, engine = Unrest(world, seed), world.engine
    for _ in range(8):
        for _ in range(6):
            unrest.act()
        assert audit(engine.audit.run).items == []
    for key in BOTH:
        shared.set_limit(engine, key, concurrency=2, per_minute=60)
    unrest.pause()
    unrest.tell(unrest.refs[0], "abort")
    for ref in unrest.refs[1:]:
        unrest.tell(ref, "resume")
    assert any(unrest.all_done() for _ in range(15))
    for key in BOTH:
        assert engine.store.fleet().tickets(key) == []
        assert engine.store.fleet().holders(key) == []
