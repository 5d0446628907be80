"""The checks of plans name what is broken: each promise about plans is broken once, by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from app.plans.tasks import PlanRecord, TaskRecord
from leadhand.models.views.step import Event
from tests.chaos.plan_load import GIVES_UP, Plans, accepted_of, tasks_of
from tests.chaos.planned import as_drawn, planned
from tests.chaos.records import Body, Reported, with_children
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

DOCUMENT: dict[str, Any] = {
    "at_once": 2, "task_retries": 1, "on_task_failure": "continue",
    "tasks": [
        {"id": "a", "dependencies": [], "description": "It takes a while.", "checkers": ["soon"]},
        {"id": "b", "dependencies": ["a"], "description": "", "checkers": ["never"]},
        {"id": "c", "dependencies": ["b"], "description": "", "checkers": ["soon"]},
        {"id": "d", "dependencies": [], "description": GIVES_UP, "checkers": ["soon"]},
    ],
}  # fmt: skip


class Found:
    """A plan as it should be: a is accepted, b fails twice, c is blocked, d gives up."""

    def __init__(self, world: World) -> None:
        given = [
            {"id": one["id"], "dependencies": one["dependencies"]} for one in DOCUMENT["tasks"]
        ]
        self.plan = PlanWorld(world, given, at_once=2)
        self.bodies: dict[str, list[Body]] = {}
        self.plan.begin()
        self.report("a", "completed")
        self.plan.finish("a")
        self.report("d", "blocked")
        self.plan.exit("d")
        for _ in range(2):
            self.report("b", "failed")
            self.plan.fail("b")
        assert self.plan.status == "failed"
        self.record, *below = with_children(world.engine, self.plan.id)
        self.below = {child.ref.id: child for child in below}

    def report(self, task: str, status: str) -> None:
        child = self.plan.child(task).id
        notes = f"ends {child}"
        self.plan.report(task, status, notes=notes)
        reports = (Reported(notes, status, 200, self.plan.record.version),)
        self.bodies[child] = [Body(child, "do", 1, 1, child, "task", 0.0, reports=reports)]

    @property
    def told(self) -> list[str]:
        drawn = as_drawn(DOCUMENT, self.record, self.below)
        return [*planned(self.record, self.below, self.bodies), *drawn]

    def change(self, task: str, **more: Any) -> None:
        """Change the stored record of a task."""
        plan = self.record.plan
        assert plan is not None
        self._set(
            plan._replace(
                tasks=tuple(
                    one.model_copy(update=more) if one.id == task else one for one in plan.tasks
                )
            )
        )

    def task(self, task: str) -> TaskRecord:
        assert self.record.plan is not None
        return next(one for one in self.record.plan.tasks if one.id == task)

    def _set(self, plan: PlanRecord) -> None:
        self.record = replace(self.record, plan=plan)

    def events(self, change: Callable[[list[Event]], list[Event]]) -> None:
        self.record = replace(self.record, events=change(list(self.record.events)))

    def changes(self, **wanted: object) -> list[Event]:
        found = [event for event in self.record.events if event.type == "plan.changed"]
        return [e for e in found if wanted.items() <= e.fields.items()]


@pytest.fixture
def found(store_url: str) -> Found:
    return Found(World(store_url))


def test_a_plan_as_it_should_be_breaks_nothing(found: Found) -> None:
    assert found.told == []
    assert [task.fact for task in found.record.plan.tasks] == [  # type: ignore[union-attr]
        "accepted", "failed", None, "exited",
    ]  # fmt: skip


def lost_version(found: Found) -> None:
    gone = found.changes(what="started")[0]
    found.events(lambda events: [event for event in events if event is not gone])


def told_twice(found: Found) -> None:
    """A report was applied twice."""
    again = found.changes(what="reported")[0]
    found.events(lambda events: [*events, again])


def begun_early(found: Found) -> None:
    """A task began before what it needs was accepted."""
    found.change("b", deps=("d",))


def started_twice(found: Found) -> None:
    """Two sessions carry out one run."""
    (first,) = [one for one in found.below.values() if "a~1" in one.fields["parent"]]
    other = "ffffffff"
    found.below[other] = replace(first, ref=first.ref._replace(id=other))
    found.record = replace(found.record, children=found.record.children | {other})


def run_left_out(found: Found) -> None:
    found.change("b", runs=found.task("b").runs[1:])


def other_end(found: Found) -> None:
    """The session of an accepted task has failed."""
    session = str(found.task("a").session)
    child = found.below[session]
    found.below[session] = replace(child, fields={**child.fields, "status": "failed"})


def other_summary(found: Found) -> None:
    outcomes = dict(found.record.outcomes)
    value = {**_value(outcomes["execute"].value), "accepted": 2}
    outcomes["execute"] = outcomes["execute"].model_copy(update={"value": value})
    found.record = replace(found.record, outcomes=outcomes)


def _value(value: Any) -> Mapping[str, Any]:
    assert isinstance(value, dict)
    return value


def lost_report(found: Found) -> None:
    """A report that was answered is in no history."""
    found.change("a", history=[one for one in found.task("a").history if not one.note])


def lost_notice(found: Found) -> None:
    found.record = replace(found.record, inbox=found.record.inbox[1:])


def foreign_report(found: Found) -> None:
    """A report of one task is in another one, too."""
    (note,) = [one for one in found.task("a").history if one.note]
    found.change("d", history=[*found.task("d").history, note])


def unsent_report(found: Found) -> None:
    found.bodies = {}


def third_run(found: Found) -> None:
    parent = json.dumps({"task": "b~3"})
    (first,) = [one for one in found.below.values() if "b~2" in one.fields["parent"]]
    other = replace(first, ref=first.ref._replace(id="ffffffff"), fields={"parent": parent})
    found.below["ffffffff"] = other
    found.record = replace(found.record, children=found.record.children | {"ffffffff"})


@pytest.mark.parametrize(
    "breaks",
    [
        lost_version, told_twice, begun_early, started_twice, run_left_out, other_end,
        other_summary, lost_report, lost_notice, foreign_report, unsent_report, third_run,
    ],
)  # fmt: skip
def test_a_broken_promise_about_a_plan_is_named(
    found: Found, breaks: Callable[[Found], None]
) -> None:
    breaks(found)
    assert found.told


def test_tasks_that_come_to_something_else_are_named(found: Found) -> None:
    found.change("b", run=3)
    assert "b came to ('failed', 3), it should be ('failed', 2)" in found.told


def test_each_way_in_which_a_plan_ends_is_drawn() -> None:
    plans = Plans(Random(1), lambda *words: " ".join(map(str, words)), longest_s=1)
    drawn = [plans.plan() for _ in range(60)]
    codes = {end.code for end, _ in drawn}
    assert codes == {"done", "failed_step", "blocked_on"}
    for end, document in drawn:
        tasks = tasks_of(document)
        accepted, blocked = accepted_of(tasks)
        assert (end.status == "completed") <= (not blocked)
        assert not accepted & blocked
    assert any("extra" in {task.id for task in tasks_of(document)} for _, document in drawn)
