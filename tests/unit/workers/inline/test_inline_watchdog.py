"""The watchdog of inline calls: each call is made by a forked process and watched from this one."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from tasks.bootstrap import make_engine
from tests.redis_users import of_broker
from tests.waiting import wait_until
from workers.attempt.heartbeat import WAIT_S, Heartbeats, Lease
from workers.attempt.inline_watchdog import InlineWatchdog, describe_call
from workers.processes.orphans import has_ended
from workers.processes.warm_pool import CallSlot, CallSlots, RunningCall

LEASE_S = 30.0


class World:
    """An engine, a session of quick steps side by side, and a process that is in an inline call."""

    def __init__(self, folder: Path, url: str) -> None:
        env = {"REDIS_URL": url, "BROKER_URL": of_broker(url), "SECRET": "s" * 20}
        env |= {"SPILL": str(folder / "spill"), "LEASE_S": str(LEASE_S)}
        settings = Settings.from_env({f"LEADHAND_{name}": value for name, value in env.items()})
        self.engine: Engine
        self.engine, self.celery = make_engine(settings)
        self.slots = CallSlots()
        self.is_draining = False
        self.heart = Heartbeats(self.engine, draining=lambda: self.is_draining)
        self.watchdog = InlineWatchdog(self.engine, self.slots, self.heart, worker="one")
        self.session = self._submit(folder)
        self.ref: SessionRef = self.engine.registry.ref(self.session)
        self.children: list[int] = []

    def _submit(self, folder: Path) -> str:
        inputs: dict[str, JsonValue] = {"tool": "noop"}
        steps = (Step(id=n, action=Action.TOOL, quick=True, inputs=inputs) for n in "abc")
        body = tuple(step.model_copy(update={"needs": ()}) for step in steps)
        about = About(kind="graph", name="test", cwd=str(folder))
        return self.engine.submit.program(Program(name="test", body=body), about).session

    def call(
        self, *, limit_s: float = 60, then: Callable[[CallSlot], object] = lambda _: signal.pause()
    ) -> int:
        """Fork a process that holds the steps and begins the call of the first one."""
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                leases = [self._claim(step) for step in "abc"]
                slot = self.slots.own()
                slot.begin(limit_s, describe_call("sums:hold", leases))
                os.write(writer, b"x")
                then(slot)
            finally:
                os._exit(0)
        self.children.append(pid)
        os.close(writer)
        assert os.read(reader, 1) == b"x"
        os.close(reader)
        return pid

    def _claim(self, step: str) -> Lease:
        nonce = uuid.uuid4().hex
        answer = self.engine.attempts.claim(
            self.ref, step, nonce=nonce, worker=f"one/{os.getpid()}"
        )
        (grant,) = answer.grants
        return Lease(self.ref, grant, sent=time.monotonic(), lease_s=LEASE_S)

    def look_until(self, condition: Callable[[], bool]) -> None:
        def look() -> bool:
            self.watchdog.look()
            return condition()

        wait_until(look, timeout=15)

    def steps(self) -> dict[str, tuple[str, int, int]]:
        """The state of each step, the number of its attempts, and how many of them were lost."""
        found = self.engine.queries.steps(self.session).items
        return {one.address: (one.state, one.attempt, one.lost) for one in found}

    def leases(self) -> dict[str, float]:
        """When the lease of each step ends."""
        store = self.engine.store
        found: list[tuple[str, float]] = store._redis.zrange(  # type: ignore[assignment]
            store.keys.everywhere("leases"), 0, -1, withscores=True
        )
        return {member.rpartition("|")[2]: score for member, score in found}

    def running(self) -> RunningCall:
        (call,) = self.slots.running()
        return call

    def close(self) -> None:
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self.celery.close()


@pytest.fixture
def world(tmp_path: Path, store_url: str) -> Iterator[World]:
    world = World(tmp_path, store_url)
    yield world
    world.close()


def test_call_is_killed_at_its_time_limit_and_the_others_are_handed_back(world: World):
    pid = world.call(limit_s=0.3)
    world.look_until(lambda: world.steps()["a"][0] == "failed")
    assert has_ended(pid)
    reason = wait_until(lambda: world.engine.queries.session(world.session).reason)
    assert reason is not None
    assert (reason.code, reason.text) == ("timeout", "tool 'sums:hold' timed out after 0.3 seconds")
    assert list(world.slots.running()) == []


def test_steps_behind_a_call_past_its_time_limit_cost_no_attempt(world: World):
    world.call(limit_s=0.3)
    world.look_until(lambda: list(world.slots.running()) == [])
    wait_until(lambda: {world.steps()[one][1:] for one in "bc"} == {(0, 0)})


def test_process_that_dies_in_a_call_loses_that_attempt_alone(world: World):
    world.call(then=lambda _: os.kill(os.getpid(), signal.SIGKILL))
    world.look_until(lambda: world.steps()["a"][2] == 1)
    wait_until(lambda: {world.steps()[one] for one in "bc"} == {("ready", 0, 0)})
    assert list(world.slots.running()) == []


def test_stop_kills_the_call(world: World):
    pid = world.call()
    world.engine.control.apply(world.session, "stop")
    world.look_until(lambda: has_ended(pid))
    wait_until(lambda: world.engine.queries.session(world.session).status == "stopped")


def test_end_of_the_drain_kills_the_call_and_hands_it_back(world: World):
    pid = world.call()
    world.heart._drain_s = 0.1
    world.is_draining = True
    world.look_until(lambda: has_ended(pid))
    wait_until(lambda: set(world.steps().values()) == {("ready", 0, 0)})


def test_steps_behind_a_slow_call_are_handed_back_while_it_runs(world: World):
    pid = world.call()
    began = world.running().started
    world.look_until(lambda: world.steps()["b"][0] == world.steps()["c"][0] == "ready")
    assert time.monotonic() - began >= WAIT_S
    assert not has_ended(pid)
    assert world.steps()["a"] == ("running", 1, 0)
    assert world.slots.end(world.running().slot) is True


def test_call_that_returned_in_time_is_not_killed(world: World):
    reader, writer = os.pipe()

    def return_and_wait(slot: CallSlot) -> None:
        os.read(reader, 1)
        slot.end()
        slot.begin(60, b"the next call")
        signal.pause()

    pid = world.call(limit_s=0.4, then=return_and_wait)
    world.look_until(lambda: world.running().slot in world.watchdog._watched)
    seen = world.running()
    os.write(writer, b"x")
    wait_until(lambda: seen not in world.slots.running())
    wait_until(lambda: [*world.slots.running()])
    assert not world.watchdog._kill(seen)
    assert not has_ended(pid)


def test_watched_call_keeps_its_lease(world: World):
    world.call()
    before = world.leases()
    world.look_until(lambda: world.leases()["a"] > before["a"])
