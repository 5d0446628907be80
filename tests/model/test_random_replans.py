"""Random plans whose team lead is asked for another way about each task that failed for good.

Its answers, which may come late or twice, are a part of the model. So are starts of tasks that
are handled twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import pytest
from pydantic import JsonValue

from app.plans.progress import spawn_task
from tests.engine.driving import Bench
from tests.model.test_random_plans import Walk

FEW, MANY = range(12), range(12, 250)
MOST_ASKED = 4


class ReplanWalk(Walk):
    """A random plan that is edited by its team lead."""

    MORE: Mapping[str, object] = {
        "on_task_failure": "replan",
        "proposals": "accept",
        "max_replans": MOST_ASKED,
        "replan_timeout_s": 7 * 86_400.0,
    }

    def __init__(self, bench: Bench, seed: int) -> None:
        super().__init__(bench, seed)
        self.model.most_asked = MOST_ASKED

    def run(self) -> None:
        super().run()
        self.compare_sessions()

    def actions(self) -> list[Callable[[], None]]:
        found = [] if self.model.of("running") else [self.answer]
        for one in super().actions():
            needs_work = one in (self.end, self.report)
            found += [one] if self.model.of("running") or not needs_work else []
        return found + [self.start_again] + [self.answer] * 3 * bool(self.model.asked)

    def end(self) -> None:
        if self.model.of("running"):
            super().end()
        else:
            self.answer()

    def answer(self) -> None:
        """The team lead answers about one of the tasks."""
        task = self.random.choice(sorted(self.model.asked))
        operations = self.random.choice((self.no_way, self.retrying, self.easier, self.without))(
            task
        )
        session = self.plan.asked(task)
        self.plan.answer(task, *operations)
        if self.random.random() < 0.3:  # a message that arrives twice
            self.plan.engine.reports.deliver(session)

    def no_way(self, task: str) -> list[JsonValue]:
        del self.model.asked[task]
        self.model.advance()
        return []

    def retrying(self, task: str) -> list[JsonValue]:
        del self.model.asked[task]
        if self.is_open(task):
            self.model.begin_again(task, by_person=True)
        else:
            self.model.advance()  # it was resumed or retried meanwhile: the answer is refused
        return [{"op": "retry", "id": task}]

    def easier(self, task: str) -> list[JsonValue]:
        del self.model.asked[task]
        id_ = f"t{len(self.model.tasks) + self.random.randint(100, 10**6)}"
        if self.is_open(task):
            self.model.add(id_, (), 5)
            self.model.begin_again(task, by_person=True)
        else:
            self.model.advance()
        return [{"op": "add", "task": {"id": id_, "title": "easier"}}, {"op": "retry", "id": task}]

    def without(self, task: str) -> list[JsonValue]:
        """Do without the task, unless others need it or it is at work."""
        del self.model.asked[task]
        needed = any(task in one.deps for one in self.model.tasks.values())
        needed = needed or len(self.model.tasks) == 1  # a plan has at least one task
        one = self.model.tasks[task]
        if not needed and (self.is_open(task) or one.state == "waiting"):
            self.model.drop(task)
        else:
            self.model.advance()
        return [{"op": "drop", "id": task}]

    def is_open(self, task: str) -> bool:
        """Whether the task may be retried."""
        one = self.model.tasks[task]
        return one.state == "done" and one.fact != "accepted"

    def start_again(self) -> None:
        """The message that starts a task is handled twice, the second time beside the first."""
        running = [one for one in self.plan.record.tasks if one.state == "running"]
        if running:
            one = self.random.choice(running)
            arguments: dict[str, JsonValue] = {
                "task": one.id, "run": one.run, "child": one.session,
            }  # fmt: skip
            reply = self.world.engine.transitions.run("plan_started", self.plan.ref, arguments)
            assert reply.word == "repeated"
            spawn_task(self.plan.engine, self.plan.ref, f"{one.id}~{one.run}")

    def compare(self) -> None:
        super().compare()
        asked = {one.id: one.replan for one in self.plan.record.tasks if one.replan is not None}
        open_ = {id_: one.run for id_, one in asked.items() if one.ended is None}
        assert open_ == self.model.asked

    def compare_sessions(self) -> None:
        """Each run has one child session, and each question another one."""
        record = self.plan.record
        for task in record.tasks:
            assert [run.run for run in task.runs] == list(range(1, task.run + 1))
        sessions = [run.session for task in record.tasks for run in task.runs]
        assert len(sessions) == len(set(sessions))


def run_walks(bench: Bench, seeds: Iterable[int]) -> None:
    for seed in seeds:
        bench.restart()
        try:
            ReplanWalk(bench, seed).run()
        except AssertionError as error:
            raise AssertionError(f"plan {seed}: {error}") from error


def test_replanned_plans_do_what_the_model_says(bench: Bench) -> None:
    run_walks(bench, FEW)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_more_replanned_plans_do_what_the_model_says(bench: Bench) -> None:
    run_walks(bench, MANY)
