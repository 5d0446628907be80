"""Stops against claims and settles, and controls against each other, in threads."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import pairwise
from threading import Thread
from typing import Any

import pytest
from redis import Redis

from app.core.states import SESSION_NEXT, SessionStatus
from app.store.store import connect
from tests.effort import few_or_all
from tests.engine.driving import Bench, Drive, held, loop, program, step
from tests.waiting import wait_until

#: Sessions that are raced for, and stopped one after the other, in each round.
TOGETHER = 5
WORKERS = 2

PROGRAM = program(
    loop(
        "loop",
        step("do", quick=True),
        *(step(f"check{n}", "check", needs=("do",), quick=n == 0) for n in range(3)),
        step("join", needs=("check0", "check1", "check2")),
        turns=1000,
    )
)


class Hand(threading.Thread):
    """A worker that claims and settles whatever is there, as fast as it can."""

    def __init__(self, url: str, seed: int) -> None:
        super().__init__(daemon=True)
        self.bench = Bench(connect(url))
        self.random = random.Random(seed)
        self.drives: Sequence[Drive] = ()
        self.over = False
        self.looks = 0
        self.settled = 0

    def run(self) -> None:
        while not self.over:
            drives = self.drives
            for drive in self.random.sample(drives, len(drives)):
                self._work(drive)
            self.looks += 1

    def has_looked(self, times: int) -> bool:
        return self.looks >= times

    def _work(self, drive: Drive) -> None:
        for address in self.random.sample(live := sorted(drive.live), len(live)):
            for grant in drive.claim(address).grants:
                self._end(drive, held(grant))

    def _end(self, drive: Drive, grant: dict[str, object]) -> None:
        """Settle it, with the quick one that this hands out; or hand it back, as a stopped one."""
        if self.random.random() < 0.2:
            drive.run("release", {**grant, "why": "stop"})
            return
        take = [drive.bench.nonce()] if self.random.random() < 0.5 else []
        said = {"worker": "w", "word": "succeeded", "take": take, "retryable": True}
        answer = drive.run("settle", {**grant, **said}, outcome='{"word": "succeeded"}')
        self.settled += 1
        for next_one in answer.grants:
            drive.run("release", {**held(next_one), "why": "stop"})


@pytest.fixture
def hands(store_url: str) -> Iterator[list[Hand]]:
    hands = [Hand(store_url, seed) for seed in range(WORKERS)]
    often = sys.getswitchinterval() / 20  # who waits for an answer goes on as soon as it is there
    for hand in hands:
        hand.start()
    sys.setswitchinterval(often)
    yield hands
    sys.setswitchinterval(often * 20)
    for hand in hands:
        hand.over = True
    for hand in hands:
        hand.join()
        hand.bench.redis.close()


def stopped(drive: Drive, redis: Redis) -> str:
    """Stop it; the last event that it had when its stop was acknowledged."""
    assert drive.control("stop", nonce=drive.bench.nonce()).word == "done"
    wait_until(lambda: drive.status == "stopped")
    newest: Any = redis.xrevrange(drive.key("events"), count=1)
    return str(newest[0][0])


def have_settled(hands: Sequence[Hand], count: int) -> bool:
    return sum(hand.settled for hand in hands) >= count


def look_again(hands: Sequence[Hand]) -> None:
    """Let each of them try everything once more: the look under way may be over in a moment."""
    for hand in hands:
        wait_until(partial(hand.has_looked, hand.looks + 2))


@pytest.mark.no_cover
@pytest.mark.timeout(300)
@pytest.mark.parametrize("rounds", few_or_all(20, 200))
def test_an_acknowledged_stop_starts_nothing_in_racing_tries(
    store_url: str, hands: list[Hand], redis_client: Redis, rounds: int
):
    bench, met = Bench(connect(store_url)), 0
    for number in range(rounds):
        drives = [bench.start(PROGRAM, name=f"{number:04x}{n:04x}") for n in range(TOGETHER)]
        enough = sum(hand.settled for hand in hands) + TOGETHER
        for hand in hands:
            hand.drives = [Drive(hand.bench, drive.ref, PROGRAM) for drive in drives]
        wait_until(partial(have_settled, hands, enough))
        last = [stopped(drive, redis_client) for drive in drives]
        look_again(hands)
        for drive, acknowledged in zip(drives, last, strict=True):
            assert not redis_client.xrange(drive.key("events"), min=f"({acknowledged}")
            assert not drive.members("running")
            met += stop_met_a_step(drive)
        for hand in hands:
            hand.drives = ()
    assert met > rounds * TOGETHER / 20, f"only {met} stops met a step that was running"


def stop_met_a_step(drive: Drive) -> bool:
    """Whether something was still running when the stop was asked for."""
    kinds = [kind for kind, _ in drive.events()]
    return len(kinds) - kinds.index("session.status") > 2


def test_racing_controls_follow_one_another_and_each_is_told_what_it_did(store_url: str):
    """Who is told `done` did it, in an order that the table of states allows; no other did."""
    bench = Bench(connect(store_url))
    for number in range(100):
        drive = bench.start(PROGRAM, name=f"{number:08x}")
        grant = drive.take("loop~1[1]/do")
        words: Counter[tuple[str, str]] = Counter()

        def steer(verb: str, drive: Drive = drive, words: Counter[tuple[str, str]] = words) -> None:
            words[verb, drive.control(verb, nonce=f"{verb} {drive.ref.id}").word] += 1

        threads = [Thread(target=steer, args=(verb,)) for verb in ("stop", "abort", "exit", "stop")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        drive.release(grant, why="stop")
        stream = bench.redis.xrange(drive.key("events"))
        told = [json.loads(f["d"])["status"] for _, f in stream if f["t"].startswith("session.")]
        for before, after in pairwise(told):
            assert SessionStatus(after) in SESSION_NEXT[SessionStatus(before)], told
        by_verb = {"stop": "stopping", "abort": "aborting", "exit": "exiting"}
        for verb, status in by_verb.items():
            assert told.count(status) == min(1, words[verb, "done"]), (words, told)
        assert told[-1] in ("aborted", "exited"), told
