"""Whole programs under a seeded schedule of faults end as the interpreter computes.

At every transition a worker may die, a message be lost or come twice, a reply be lost so that the
call comes again, somebody may speak who lost his step long ago, and the session may be stopped and
resumed. Whatever the schedule, the same steps run, say the same, and the session ends the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import settings

from app.core.addresses import path_of
from app.core.program import (
    Action,
    Loop,
    OnFail,
    Program,
    RetryPolicy,
    Step,
    Template,
    transitive_needs,
)
from app.core.records import Grant
from app.core.routing import widths
from tests.engine.driving import LEASE_MS, Bench, Drive, assert_told_once
from tests.model.interpreter import Run, Said
from tests.model.random_programs import random_program

#: Lost more often than this a step is poison.
LOST_AT_MOST = 4
ROUNDS = 4000


def settled(program: Program) -> Program:
    """The program without races: nothing ends a block while other nodes of it run."""
    return Program(body=_settled(program.body))


def _settled(body: tuple[Step | Loop, ...]) -> tuple[Step | Loop, ...]:
    earlier, nodes = transitive_needs(body), []
    for node in body:
        others = earlier.keys() - {node.id} - earlier[node.id]
        alone = all(node.id in earlier[other] for other in others)
        change: dict[str, Any] = {}
        if isinstance(node, Loop):
            change = {"body": _settled(node.body)}
            if not alone:
                change["on_fail"] = OnFail.CONTINUE
        else:
            retry = RetryPolicy(retries=node.retry.retries, backoff_s=1, max_backoff_s=2)
            change = {"timeout_s": 3600, "retry": retry}
            if not alone or node.for_each is not None:
                change["critical"] = False
            # An item, and a step that runs in parallel with others, never ends its block.
            change["label"] = "ends" if alone and node.for_each is None else "beside"
        nodes.append(node.model_copy(update=change))
    return tuple(nodes)


def with_last_steps(program: Program, seed: int) -> Program:
    """The program with two or no steps that run although the session fails."""
    random = Random(f"{seed} last")
    if random.random() < 0.5:
        return program
    names = tuple(node.id for node in program.body)
    always, ended = Template(join="always"), Template(join="ended")
    last = Step(id="last", action=Action.TOOL, needs=names, template=always, label="ends")
    after = ("last",) if random.random() < 0.5 else (names[0], "last")
    told = Step(id="told", action=Action.TOOL, needs=after, template=ended, label="ends")
    return Program(body=(*program.body, last, told))


class Oracle:
    """What each step says, by its address: the same in whatever order it is asked."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, address: str, step: Step) -> Said:
        random = self._random(address, "says")
        word = random.choice(("succeeded",) * 7 + ("failed",))
        if step.action in (Action.WAIT, Action.HUMAN, Action.CHILD):
            return Said("succeeded", None, self._width(address))
        verdicts: dict[Action, Sequence[str | None]] = {
            Action.JUDGE: ("retry", "retry", "accept", "terminate"),
            Action.BREAK: ("retry", "retry", "accept"),
            Action.AGENT: (None,) * 9 + ("terminate",),
            Action.CHECK: ("accept", "retry"),
            Action.DECIDE: ("accept", "retry"),
        }
        verdict = random.choice(verdicts.get(step.action, (None,)))
        continues = step.ends == "iteration" and verdict == "accept"
        if step.label == "beside" and step.action in ENDING and not continues:
            verdict = None
        if word == "failed" and step.action in ENDING:
            verdict = None
        return Said(word, verdict, self._width(address))

    def failures(self, address: str, step: Step) -> int:
        """How many attempts fail before the one that says it."""
        return self._random(address, "fails").randint(0, step.retry.retries)

    def _width(self, address: str) -> int:
        return self._random(address, "width").choice((0, 1, 3))

    def _random(self, address: str, about: str) -> Random:
        return Random(f"{self._seed} {about} {address}")


ENDING = (Action.JUDGE, Action.BREAK, Action.AGENT)


class Schedule:
    """Workers, sweepers and faults, in an order that a seed decides."""

    def __init__(
        self, bench: Bench, program: Program, oracle: Oracle, seed: int, *, stops: int = 1
    ) -> None:
        self.stops = stops
        self.bench, self.oracle, self.program = bench, oracle, program
        self.random = Random(seed)
        bench.restart()
        self.drive: Drive = bench.start(program, window=self.random.choice((1, 2, 100)))
        self.held: list[Grant] = []
        self.ever: list[Grant] = []
        self.faults = 0
        bench.due(run_id="one")

    def run(self) -> None:
        acts = {
            self.claim: 30, self.finish: 30, self.sweep: 6, self.zombie: 5, self.hand_back: 2,
            self.die: 2, self.stop_and_go: self.stops, self.lose_hints: 1, self.doubled: 3,
        }  # fmt: skip
        for _ in range(ROUNDS):
            if self.drive.status in ("completed", "failed"):
                return
            self.random.choices(list(acts), list(acts.values()))[0]()
        raise AssertionError(f"stuck: {self.drive.status}, live: {self.drive.live}")

    def claim(self) -> None:
        """A message arrives; any that was sent lately, now and then an old one."""
        if self.drive.hinted:
            self._take(self.random.choice(self.drive.hinted[-4:]))
        else:
            self.sweep()

    def _take(self, address: str) -> None:
        nonce = self.bench.nonce()
        for _ in range(self.random.choice((1, 1, 2))):
            self._hold(self.drive.claim(address, nonce=nonce).grants)

    def _hold(self, grants: Sequence[Grant]) -> None:
        known = {(grant.address, grant.fence) for grant in self.ever}
        new = [grant for grant in grants if (grant.address, grant.fence) not in known]
        self.held += new
        self.ever += new

    def finish(self) -> None:
        """Settle or park a random attempt; the reply may be lost."""
        if not self.held:
            self.claim()
            return
        grant = self.held.pop(self.random.randrange(len(self.held)))
        step = self.program.step(grant.address)
        parks = step.action in (Action.HUMAN, Action.WAIT, Action.CHILD)
        if grant.failed < self.oracle.failures(grant.address, step):
            self._say(grant, Said("failed"))
        elif parks and self.random.random() < 0.7:
            self._park(grant, step)
        else:
            self._say(grant, self.oracle(grant.address, step))

    def _park(self, grant: Grant, step: Step) -> None:
        if step.action is Action.WAIT:
            self.drive.park(grant, "wait", wait_s=1)
            self.bench.tick(1)
            self.sweep()
            return
        fence = self.drive.park(grant, "human", wait_s=10**6).fence
        said = self.oracle(grant.address, step)
        for _ in range(self.random.choice((1, 2))):
            self.drive.answer(grant.address, fence, said.word, expand=self._lists(grant, said))

    def _say(self, grant: Grant, said: Said, *, take: int | None = None) -> None:
        take = self.random.choice((0, 0, 1, 3)) if take is None else take
        arguments: dict[str, Any] = {
            "take": [self.bench.nonce() for _ in range(take)],
            "retryable": grant.failed < self.program.step(grant.address).retry.retries,
            "expand": self._lists(grant, said),
        }
        for _ in range(self.random.choice((1, 1, 2))):
            self._hold(self.drive.settle(grant, said.word, said.verdict, **arguments).grants)

    def _lists(self, grant: Grant, said: Said) -> dict[str, list[str]]:
        """What a step writes for the for_each nodes that wait for its list."""
        nodes = () if "#" in grant.address else widths(self.program, path_of(grant.address))
        return {name: [str(item) for item in range(said.width)] for name in nodes}

    def zombie(self) -> None:
        """An attempt that lost its step long ago settles it with another outcome."""
        gone = [grant for grant in self.ever if grant not in self.held]
        if gone:
            grant = self.random.choice(gone)
            match self.random.choice(("settle", "beat", "release", "park")):
                case "settle":
                    self.drive.settle(grant, "failed", "terminate")
                case "beat":
                    self.drive.beat(grant)
                case "release":
                    self.drive.release(grant)
                case _:
                    self.drive.park(grant)

    def hand_back(self) -> None:
        if self.held:
            self.drive.release(self.held.pop())

    def die(self) -> None:
        """All workers are gone, with what they held; their leases pass."""
        lost = [record.get("lost", 0) for record in self.drive.records("steps").values()]
        if self.held and max(lost, default=0) < LOST_AT_MOST:
            self.held.clear()
            self.bench.tick(LEASE_MS / 1000 + 1)
            self.sweep()

    def sweep(self) -> None:
        self.bench.tick(self.random.choice((0, 0.5, 4)))
        for grant in self.held:
            self.drive.beat(grant)
        self.drive.sweep()

    def stop_and_go(self) -> None:
        """Stopped in the middle, with what runs handed back or, too late for that, settled."""
        if self.drive.control("stop").word != "done":
            return
        while self.held and self.random.random() < 0.5:
            self.finish_while_stopping()
        for grant in self.held:
            self.drive.release(grant)
        self.held.clear()
        self.go_on()

    def go_on(self) -> None:
        self.drive.control("resume")

    def finish_while_stopping(self) -> None:
        grant = self.held.pop()
        step = self.program.step(grant.address)
        if grant.failed >= self.oracle.failures(grant.address, step):
            self._say(grant, self.oracle(grant.address, step), take=0)
        else:
            self.drive.release(grant)

    def lose_hints(self) -> None:
        self.drive.hinted.clear()

    def doubled(self) -> None:
        """A message from any time comes once more."""
        if self.drive.hinted:
            self._take(self.random.choice(self.drive.hinted))


def runs_as_it_should(bench: Bench, seed: int) -> int:
    """One program under one schedule; how many steps it had."""
    program = with_last_steps(settled(random_program(Random(seed).choice)), seed)
    oracle = Oracle(seed)
    expected = Run(program, oracle)
    # Last steps run at a stop, too: tests/engine/graphs stops and resumes such sessions.
    stops = 0 if program.body[-1].id == "told" else 1
    schedule = Schedule(bench, program, oracle, seed, stops=stops)
    schedule.run()
    drive = schedule.drive
    steps = {a: (r["state"], r.get("verdict")) for a, r in drive.records("steps").items()}
    turns = {i: (r["verdict"], r.get("iteration") or 0) for i, r in drive.records("turns").items()}
    turns.pop("")
    assert steps == expected.steps, seed
    assert turns == expected.turns, seed
    assert drive.status == expected.status, seed
    assert_told_once(drive)
    return len(steps)


@pytest.mark.no_cover
@pytest.mark.timeout(1200)
def test_whole_programs_end_as_the_interpreter_says(bench: Bench) -> None:
    thorough = settings.get_current_profile_name() == "thorough"
    count = 2000 if thorough else 20
    assert sum(runs_as_it_should(bench, seed) for seed in range(count)) > 5 * count
