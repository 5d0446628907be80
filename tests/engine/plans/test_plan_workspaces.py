"""The folders of a plan's tasks: paths that are known and signed at create, and the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import JsonValue

from app import folders
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from leadhand.errors import PlanRefused
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

TASKS: list[dict[str, object]] = [{"id": "a"}, {"id": "b", "dependencies": ["a"]}]
SHELF = "/state/worktrees/0123456789abcdef"


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


class Surveyed(PlanWorld):
    """A plan whose folder a worker has looked at."""

    def survey(self, kind: str, **more: str) -> None:
        grant = self.world.grant(self.ref, "workspace")
        work = self.engine.attempts.work(self.ref, grant)
        assert work.inputs["do"] == "survey"
        assert work.workspace is None
        value: JsonValue = {"kind": kind, "shelf": f"{SHELF}/{self.id}", **more}
        self.world.settle(self.ref, grant, Outcome(word="succeeded", value=value))

    def made(self, task: str) -> dict[str, object]:
        """The resolved inputs of the step that makes a task's folder."""
        child = self.child(task)
        grant = self.world.grant(child, "workspace")
        work = self.engine.attempts.work(child, grant)  # raises SpecForeign if it is not signed
        assert work.workspace is not None
        folders.record_of_task(
            self.engine,
            {"plan": self.id, "task": task, "run": self.task(task).run, "base": "c0ffee"},
        )
        self.world.settle(child, grant)
        return dict(work.inputs)

    def keep(self, task: str) -> None:
        child = self.child(task)
        self.world.settle(child, self.world.grant(child, "keep"))


@pytest.fixture
def plan(world: World, tmp_path: Path) -> Surveyed:
    plan = Surveyed(world, TASKS, cwd=str(tmp_path), task_retries=1, merge="none")
    plan.survey("worktree", prefix="sub", target="refs/heads/main")
    plan.begin()
    return plan


def test_path_and_branch_are_known_and_signed_at_create(plan: Surveyed, tmp_path: Path) -> None:
    child = plan.child("a")
    path, branch = f"{SHELF}/{plan.id}/a", f"leadhand/{plan.id}/a"
    fields = plan.engine.store.fields(child)
    assert fields["cwd"] == f"{path}/sub"
    assert fields["folder"].endswith(f":{path}/sub")
    assert (plan.seen("a").folder, plan.seen("a").branch) == (path, branch)
    assert plan.made("a") == {
        "do": "make", "kind": "worktree", "plan": plan.id, "task": "a", "run": 1,
        "origin": str(tmp_path), "prefix": "sub", "branch": branch, "target": "refs/heads/main",
    }  # fmt: skip
    assert plan.seen("a").base == "c0ffee"


def test_dependant_is_told_the_branch_and_waits_for_the_acceptance(plan: Surveyed) -> None:
    plan.made("a")
    plan.finish("a")
    assert plan.seen("b").session is None  # what was left is not committed yet
    plan.keep("a")
    do = plan.engine.registry.program(plan.engine.store.fields(plan.child("b"))["program"])
    prompt = str(do.step("loop/do").inputs["task"])
    assert f"(branch leadhand/{plan.id}/a)" in prompt
    assert "take it with `git merge BRANCH`" in prompt


def test_next_run_gets_another_folder_on_the_same_branch(plan: Surveyed) -> None:
    plan.made("a")
    plan.fail("a")
    assert plan.made("a")["run"] == 2
    runs = folders.list_of_plan(plan.engine, plan.id)
    assert [(one.run, one.folder, one.branch, one.base, one.status) for one in runs] == [
        (n, f"{SHELF}/{plan.id}/{name}", f"leadhand/{plan.id}/a", "c0ffee", status)
        for n, name, status in [(1, "a", "failed"), (2, "a~2", "active")]
    ]


@pytest.mark.parametrize("kind", ["worktree", "copy"])
def test_fsck_expects_no_folder_that_a_worker_has_not_made(
    world: World, tmp_path: Path, kind: str
) -> None:
    plan = Surveyed(world, [{"id": "a"}, {"id": "b"}], cwd=str(tmp_path), merge="none")
    plan.survey(kind, prefix="", target="refs/heads/main")
    plan.begin()
    plan.made("b")
    assert plan.seen("a").folder == f"{SHELF}/{plan.id}/a"  # known, but not made
    place = folders.list_all(plan.engine, None).items[0].place
    here = folders.read_at_place(plan.engine, place, []).folders
    assert [one.view.folder for one in here] == [f"{SHELF}/{plan.id}/b"]


def test_copies_have_no_branch_and_nothing_to_commit(world: World, tmp_path: Path) -> None:
    plan = Surveyed(world, TASKS, cwd=str(tmp_path))
    plan.survey("copy")
    plan.begin()
    assert plan.made("a")["branch"] == ""
    plan.finish("a")
    assert (plan.seen("a").branch, plan.seen("a").verified) == (None, True)
    program = plan.engine.registry.program(plan.engine.store.fields(plan.child("b"))["program"])
    assert "copy what you need from theirs" in str(program.step("loop/do").inputs["task"])


def test_outcome_of_the_plan_names_the_folders(plan: Surveyed) -> None:
    for task in ("a", "b"):
        plan.made(task)
        plan.finish(task)
        plan.keep(task)
    out = json.loads(plan.engine.store.values(plan.ref, "out", ["execute"])["execute"])
    assert out["value"]["worktrees"][0] == {
        "id": "a", "folder": f"{SHELF}/{plan.id}/a", "branch": f"leadhand/{plan.id}/a",
        "base": "c0ffee",
    }  # fmt: skip
    spawned = plan.engine.queries.result(plan.id).spawned
    assert spawned is not None
    assert [one.folder for one in spawned.worktrees] == [
        f"{SHELF}/{plan.id}/{task}" for task in ("a", "b")
    ]


@pytest.mark.parametrize("more", [{"workspace": "shared"}, {}])
def test_shared_folder_and_no_folder_are_as_before(
    world: World, tmp_path: Path, more: dict[str, str]
) -> None:
    cwd = {"cwd": str(tmp_path)} if more else {}
    plan = PlanWorld(world, TASKS, **more, **cwd)
    plan.begin()  # its first step is the draft
    fields = plan.engine.store.fields(plan.child("a"))
    assert fields.get("cwd", "") == cwd.get("cwd", "")
    assert plan.seen("a").folder is None
    assert folders.list_of_plan(plan.engine, plan.id) == []


def test_clean_starts_one_session_for_ended_tasks_only(plan: Surveyed) -> None:
    plan.made("a")
    found = folders.clean_of_plan(plan.engine, plan.id, [], force=True)
    assert found.session is None
    assert [one.kept for one in found.failed] == ["its session is active"]
    with pytest.raises(PlanRefused, match="task 'b': it has no folder"):
        folders.clean_of_plan(plan.engine, plan.id, ["b"], force=False)
    plan.finish("a")
    plan.keep("a")
    found = folders.clean_of_plan(plan.engine, plan.id, ["a"], force=False)
    assert found.session is not None
    ref = SessionRef(found.session, found.session)
    work = plan.engine.attempts.work(ref, plan.world.grant(ref, "workspace"))
    assert (work.step.action, work.inputs["runs"]) == (Action.WORKSPACE, [["a", 1]])
    folders.record_of_task(plan.engine, {"plan": plan.id, "task": "a", "run": 1, "kept": "dirty"})
    assert folders.list_of_plan(plan.engine, plan.id)[0].kept == "dirty"
    folders.record_of_task(plan.engine, {"plan": plan.id, "task": "a", "run": 1, "cleaned": True})
    (first, *_) = folders.list_of_plan(plan.engine, plan.id)
    assert (first.cleaned, first.kept) == (True, "")
