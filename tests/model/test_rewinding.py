"""A session resumed from an earlier point does what it would have done from there, and no more.

Nested loops with breaks, continues and decisions are stopped at each of their steps and sent back
to each step that they had done; what runs then is compared with the interpreter, and what each step
is given with what it was given in a run that was never stopped.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import settings

from app.core.addresses import block_of, path_of
from app.core.program import Program, Step, transitive_needs
from app.errors import PositionRefused
from app.history.records import Snapshot
from app.sessions.resume import rewind_to
from app.sessions.rewind import Rewind
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.model.interpreter import Run, Said
from tests.model.random_programs import random_program
from tests.model.sequences import Session, nested, plain, resumed, says
from tests.model.test_whole_programs import Oracle, Schedule, settled


def sent_back(world: World, seed: int, pairs: int) -> int:
    """Stop a program at some of its steps, and send it back to some that it had done."""
    random = Random(seed)
    tree = Program(body=nested(random))
    say = says(seed)
    expected = Run(tree, say)
    whole = Session(world, tree, say)
    assert whole.go() == [plain(address) for address in expected.order]
    assert whole.status == expected.status
    order = [plain(address) for address in expected.order]
    tried = 0
    for _ in range(pairs if len(order) > 1 else 0):
        session = Session(world, tree, say)
        stop = random.randint(1, len(order) - (expected.status == "completed"))
        session.go(stop)
        for _ in range(random.choice((1, 1, 2))):  # and sent back once more from there
            if session.status == "active":
                world.engine.control.apply(session.ref.id, "stop")
            if session.status not in ("stopped", "failed"):
                break
            after = random.choice(session.did)
            place = order.index(plain(after))
            if not resumed(session, after):
                continue
            more = session.go(random.choice((1, 2, 1000)))
            rest = order[place + 1 :]
            assert more == rest[: len(more)], (seed, stop, after)
            tried += 1
        if session.status == "active":
            session.go()
        if session.status == "stopped":
            continue
        assert session.status == expected.status, (seed, stop)
        assert plain(session.did[-1]) == order[-1]
        assert session.given == whole.given, (seed, stop)
        assert session.threads == whole.threads, (seed, stop)
    return tried


@pytest.mark.timeout(1200)
def test_what_comes_after_a_point_runs_again_and_nothing_else(bench: Bench) -> None:
    world = World.of(bench)
    thorough = settings.get_current_profile_name() == "thorough"
    count = 500 if thorough else 10
    assert sum(sent_back(world, seed, pairs=3) for seed in range(count)) > 1.5 * count


class PlainOracle(Oracle):
    """It says the same in each run of a node."""

    def __call__(self, address: str, step: Step) -> Said:
        return super().__call__(plain(address), step)

    def failures(self, address: str, step: Step) -> int:
        return super().failures(plain(address), step)


class Rewinding(Schedule):
    """A schedule in which a stopped session is sent back, now and then."""

    def __init__(self, bench: Bench, program: Program, oracle: Oracle, seed: int) -> None:
        super().__init__(bench, program, oracle, seed, stops=4)
        self.sent_back = 0
        self._seen: set[str] = set()
        self._done: set[str] = set()

    def go_on(self) -> None:
        self.check()
        if self.drive.status != "stopped":
            return  # an attempt that settled after the stop has ended it
        records = self.drive.records("steps")
        done = sorted(a for a, r in records.items() if r["state"] == "succeeded" and "#" not in a)
        found = self._rewind(self.random.choice(done)) if done and self.sent_back < 4 else None
        if found is None:
            self.drive.control("resume")
            return
        self.sent_back += 1
        self._seen = set(records)
        answer = self.drive.control("resume", adopts=None, **found.arguments())
        assert answer.word == "done"

    def _rewind(self, address: str) -> Rewind | None:
        known = Snapshot(self.bench.store, self.drive.ref)
        try:
            found = rewind_to(self.program, address, known, failed=False)
        except PositionRefused:
            return None
        block, name = block_of(address), plain(address).rpartition("/")[2]
        body = self.program.node(path_of(block)).body if block else self.program.body  # type: ignore[union-attr]
        names = {name, *transitive_needs(body)[name]}
        self._done = {f"{plain(block)}/{n}" if block else n for n in names} if found else set()
        return found

    def check(self) -> None:
        """Nothing that counted as done has run again."""
        again = {plain(a) for a in self.drive.records("steps") if a not in self._seen}
        assert not again & self._done
        self._done = set()


@pytest.mark.timeout(1200)
def test_graphs_that_are_sent_back_under_any_schedule_end_the_same(bench: Bench) -> None:
    thorough = settings.get_current_profile_name() == "thorough"
    count, times = 1000 if thorough else 8, 0
    for seed in range(count):
        tree = settled(random_program(Random(seed).choice))
        oracle = PlainOracle(seed)
        expected = Run(tree, oracle)
        schedule = Rewinding(bench, tree, oracle, seed)
        schedule.run()
        schedule.check()
        times += schedule.sent_back
        outcomes = {plain(address): came for address, came in expected.steps.items()}
        found = {
            plain(a): (r["state"], r.get("verdict"))
            for a, r in schedule.drive.records("steps").items()
            if r["state"] != "cancelled"
        }
        assert found == outcomes, seed
        assert schedule.drive.status == expected.status, seed
    assert times > count // 2
