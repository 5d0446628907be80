"""Exports of a plan's session have the plan, what children reported, and its history."""

from __future__ import annotations

import json
from pathlib import Path

from app.plans import plans
from app.sessions.outbox import keep
from leadhand.models.views.result import ExportView
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

KEY = "sk-inputsecret12345"


def worked(bench: Bench) -> PlanWorld:
    """A plan of which one task was accepted after its report, and one failed twice."""
    plan = PlanWorld(World.of(bench), [{"id": "a"}, {"id": "b", "description": f"use {KEY}"}])
    plan.begin()
    proposed = {"task": {"id": "more", "title": "One more"}, "why": "the parser is missing"}
    plan.report(
        "a", "completed", notes="all of it", pr_url="https://example.org/pr/1", proposals=[proposed]
    )
    plan.finish("a")
    for _ in range(2):
        plan.fail("b")
    plans.decide(plan.engine, plan.id, "p1", accept=False, by="ann")
    assert plan.status == "completed"
    return plan


def test_an_export_has_the_plan_its_reports_and_its_history(bench: Bench) -> None:
    plan = worked(bench)
    exported = ExportView.model_validate_json(plan.engine.queries.export(plan.id).model_dump_json())
    assert exported.plan is not None
    seen = plan.view
    assert (exported.plan.version, exported.plan.state) == (seen.version, "ended")
    first, second = exported.plan.tasks
    assert first == seen.tasks[0]
    assert (first.pr_url, first.notes) == ("https://example.org/pr/1", "all of it")
    told = [(one.status, one.by, one.note) for one in first.history]
    assert ("completed", first.session, "all of it") in told
    assert [run.ended for run in second.runs] == ["failed", "failed"]
    assert [(one.status, one.decided_by) for one in exported.plan.proposals] == [("refused", "ann")]
    reports = [one for one in exported.inbox if one.kind == "report"]
    assert [one.sender for one in reports] == [first.session]
    assert set(exported.children) == {run.session for task in seen.tasks for run in task.runs}
    changed = [e.fields["version"] for e in exported.events if e.type == "plan.changed"]
    assert changed == list(range(1, seen.version + 1))


def test_an_export_has_no_key_that_a_task_contains(bench: Bench) -> None:
    plan = worked(bench)
    exported = plan.engine.queries.export(plan.id)
    assert exported.plan is not None
    assert exported.plan.tasks[1].description == "use [redacted]"
    assert KEY not in exported.model_dump_json()


def test_an_export_of_a_draft_has_it_and_one_of_a_loop_has_no_plan(bench: Bench) -> None:
    plan = PlanWorld(World.of(bench), [{"id": "a"}], refine=True)
    before = plan.engine.queries.export(plan.id).plan
    assert before is not None
    assert (before.state, before.tasks) == ("planning", [])
    plan.draft("drafting~1[1]/decompose")
    drafted = plan.engine.queries.export(plan.id).plan
    assert drafted is not None
    assert (drafted.state, [task.id for task in drafted.tasks]) == ("refining", ["a"])
    loop = plan.world.session()
    assert plan.engine.queries.export(loop.id).plan is None


def test_the_file_of_a_plan_that_is_deleted_has_the_plan(bench: Bench, tmp_path: Path) -> None:
    plan = worked(bench)
    file = keep(plan.engine.queries.export(plan.id), tmp_path)
    found = json.loads(file.read_text())
    assert [task["id"] for task in found["plan"]["tasks"]] == ["a", "b"]
