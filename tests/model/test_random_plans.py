"""Random plans against a plain model: whatever ends, reports, edits, stops and losses come between.

The model knows nothing of the store. After each action the plan must be as the model says, and
replaying the events must give the same tasks, with one version for each change and no gap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from app.plans import plans
from leadhand.errors import NoPlan
from leadhand.models.plans import TaskReport
from leadhand.models.views.plan import ReportView
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World

#: The seeds of each run: of the first two, each notices a planted fault that few others notice.
WALKS = (106, 35, *range(18))
#: Those of the slow test.
MANY = range(18, 300)
ACTIONS = 25


@dataclass
class Task:
    deps: tuple[str, ...]
    priority: int
    at: int
    state: str = "waiting"
    fact: str | None = None
    run: int = 0
    tries: int = 0


@dataclass
class Model:
    """What a plan is to do, in a few lines."""

    at_once: int
    retries: int
    tasks: dict[str, Task] = field(default_factory=dict)
    over: bool = False
    #: How often the team lead may be asked about a failed task, and which runs it is asked about.
    most_asked: int = 0
    times_asked: int = 0
    asked: dict[str, int] = field(default_factory=dict)

    def add(self, id_: str, deps: tuple[str, ...], priority: int) -> None:
        at = max((task.at for task in self.tasks.values()), default=0) + 1
        self.tasks[id_] = Task(deps, priority, at)

    def of(self, *states: str) -> list[str]:
        return [id_ for id_, task in self.tasks.items() if task.state in states]

    def startable(self) -> list[str]:
        free = [
            id_
            for id_ in self.of("waiting")
            if all(self.tasks[need].fact == "accepted" for need in self.tasks[id_].deps)
        ]
        return sorted(free, key=lambda id_: (self.tasks[id_].priority, self.tasks[id_].at))

    def advance(self) -> None:
        free = max(0, self.at_once - len(self.of("running")))  # a resumed one may be one too many
        for id_ in self.startable()[:free]:
            self.tasks[id_].state = "running"
            self.tasks[id_].run += 1
        if not self.of("running") and not self.startable() and not self.asked:
            self.over = True

    def end(self, id_: str, fact: str) -> None:
        task = self.tasks[id_]
        if fact == "failed" and task.tries < self.retries:
            task.state, task.tries = "waiting", task.tries + 1
        else:
            task.state, task.fact = "done", fact
            self.ask(id_)
        self.advance()

    def ask(self, id_: str) -> None:
        """Ask the team lead about a task that failed for good."""
        is_bad = self.tasks[id_].fact != "accepted"
        if is_bad and id_ not in self.asked and self.times_asked < self.most_asked:
            self.asked[id_] = self.tasks[id_].run
            self.times_asked += 1

    def drop(self, id_: str) -> None:
        del self.tasks[id_]
        self.asked.pop(id_, None)
        self.advance()

    def begin_again(self, id_: str, *, by_person: bool) -> None:
        task = self.tasks[id_]
        task.fact = None
        if by_person:
            task.state, task.tries = "waiting", 0
            self.advance()
        else:
            task.state = "running"

    def states(self) -> dict[str, tuple[str, str | None, int]]:
        return {id_: (one.state, one.fact, one.run) for id_, one in self.tasks.items()}


class Walk:
    """One random plan, and its model."""

    #: Further fields of the plan's document.
    MORE: Mapping[str, object] = {}

    def __init__(self, bench: Bench, seed: int) -> None:
        self.random = Random(seed)
        self.world = World.of(bench)
        #: Every report as it was sent: child session, report and Idempotency-Key.
        self.reports: list[tuple[str, TaskReport, str]] = []
        self.model = Model(self.random.randint(1, 4), self.random.randint(0, 2))
        tasks = []
        for number in range(self.random.randint(1, 8)):
            id_ = f"t{number}"
            deps = tuple(d for d in self.model.tasks if self.random.random() < 0.3)
            priority = self.random.choice((0, 5, 5, 9))
            self.model.add(id_, deps, priority)
            tasks.append({"id": id_, "dependencies": deps, "priority": priority})
        self.plan = PlanWorld(
            self.world, tasks, at_once=self.model.at_once, task_retries=self.model.retries,
            **self.MORE,
        )  # fmt: skip
        self.plan.begin()
        self.model.advance()

    def run(self) -> None:
        self.compare()
        for _ in range(ACTIONS):
            if self.model.over:
                break
            self.losing(self.random.choice(self.actions()))
            self.compare()
        while not self.model.over:
            self.end()
            self.compare()
        self.compare_end()

    def actions(self) -> list[Callable[[], None]]:
        common = [self.end] * 6 + [self.report, self.add, self.stop_and_resume]
        failed = [id_ for id_ in self.model.of("done") if self.model.tasks[id_].fact == "failed"]
        return common + ([self.resume_child, self.retry] if failed else []) + [self.drop]

    def losing(self, action: Callable[[], None]) -> None:
        """Carry out an action; sometimes all that it sends to others is lost, and swept later."""
        if self.random.random() > 0.3:
            return action()
        transitions = self.world.engine.transitions
        deliver, transitions.deliver = transitions.deliver, lambda _: None
        action()
        transitions.deliver = deliver
        for _ in range(3):
            self.world.later(61_000)
        return None

    def end(self) -> None:
        task = self.random.choice(self.model.of("running"))
        fact = self.random.choice(("accepted", "accepted", "failed", "exited"))
        {"accepted": self.plan.finish, "failed": self.plan.fail, "exited": self.plan.exit}[fact](
            task
        )
        self.model.end(task, fact)

    def report(self) -> None:
        task = self.random.choice(self.model.of("running"))
        word = self.random.choice(("in_progress", "completed", "blocked", "failed"))
        report = TaskReport.model_validate({"status": word})
        self.reports.append((self.plan.child(task).id, report, str(len(self.reports))))
        self.deliver_report(self.reports[-1])
        if self.random.random() < 0.3:  # one that was delayed on its way arrives a second time
            before = self.plan.engine.store.plan(self.plan.ref)
            with suppress(NoPlan):
                assert self.deliver_report(self.random.choice(self.reports)).repeated
            assert self.plan.engine.store.plan(self.plan.ref) == before

    def deliver_report(self, sent: tuple[str, TaskReport, str]) -> ReportView:
        child, report, key = sent
        return plans.report(self.plan.engine, child, report, idempotency_key=key)

    def add(self) -> None:
        id_ = f"t{len(self.model.tasks) + self.random.randint(100, 10**6)}"
        deps = tuple(d for d in self.model.tasks if self.random.random() < 0.2)
        task = {"id": id_, "title": "added", "dependencies": deps}
        self.plan.edit({"op": "add", "task": task})
        self.model.add(id_, deps, 5)
        self.model.advance()

    def drop(self) -> None:
        needed = {need for task in self.model.tasks.values() for need in task.deps}
        free = [id_ for id_ in self.model.of("waiting") if id_ not in needed]
        if free:
            id_ = self.random.choice(free)
            self.plan.edit({"op": "drop", "id": id_})
            self.model.drop(id_)

    def retry(self) -> None:
        self.again(by_person=True)

    def resume_child(self) -> None:
        self.again(by_person=False)

    def again(self, *, by_person: bool) -> None:
        failed = [id_ for id_ in self.model.of("done") if self.model.tasks[id_].fact == "failed"]
        id_ = self.random.choice(failed)
        if by_person:
            self.plan.edit({"op": "retry", "id": id_})
        else:
            self.plan.resume_child(id_)
        self.model.begin_again(id_, by_person=by_person)

    def stop_and_resume(self) -> None:
        self.world.engine.control.apply(self.plan.id, "stop")
        self.world.later(61_000)
        self.world.later(61_000)
        assert self.plan.status == "stopped"
        self.world.engine.control.apply(self.plan.id, "resume")
        self.world.later(61_000)

    def compare(self) -> None:
        found = {one.id: (one.state, one.fact, one.run) for one in self.plan.record.tasks}
        assert found == self.model.states()

    def compare_end(self) -> None:
        facts = [task.fact for task in self.model.tasks.values()]
        is_whole = None not in facts and "accepted" in facts
        assert self.plan.status == ("completed" if is_whole else "failed")
        events = self.world.told(self.plan.ref, "plan.changed")
        told: list[dict[str, Any]] = [dict(f) for _, f in events if isinstance(f, dict)]
        assert len(told) == len(events)
        assert [fields["version"] for fields in told] == list(range(1, len(told) + 1))
        assert self.replayed(told) == self.model.states()
        assert audit(self.world.engine.audit.run).items == []

    @staticmethod
    def replayed(told: list[dict[str, Any]]) -> dict[str, tuple[str, str | None, int]]:
        """The tasks as a reader of the events knows them."""
        known: dict[str, tuple[str, str | None, int]] = {}
        for fields in told:
            for task in fields.get("tasks") or ():
                known[task["id"]] = (task["state"], task.get("fact"), task["run"])
            for id_ in fields.get("removed") or ():
                del known[id_]
        return known


def test_a_plan_does_what_the_model_says_whatever_comes_between(bench: Bench) -> None:
    for seed in WALKS:
        bench.restart()
        Walk(bench, seed).run()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_more_plans_do_what_the_model_says(bench: Bench) -> None:
    for seed in MANY:
        bench.restart()
        Walk(bench, seed).run()
