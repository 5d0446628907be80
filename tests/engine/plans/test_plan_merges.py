"""Merging the accepted work of tasks: child sessions, what waits for them, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pydantic import JsonValue

from app import folders
from app.core.addresses import SessionRef
from app.core.environment import SessionEnvironment
from app.core.folders import plan_branch
from app.core.outcomes import Outcome
from app.core.records import Grant
from app.plans import plans
from app.sessions.attempts import Work
from leadhand.errors import PlanRefused
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.result import LedgerEntry
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import CHECK, PlanWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World
from workers.attempt.settle import park

SHELF = "/state/worktrees/0123456789abcdef"
TASKS: list[dict[str, object]] = [
    {"id": "a"}, {"id": "b", "dependencies": ["a"]}, {"id": "c"},
]  # fmt: skip


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


class Merging(PlanWorld):
    """A plan in a repository: the test settles the steps of its children as a worker does."""

    def survey(self) -> None:
        grant = self.world.grant(self.ref, "workspace")
        assert self.engine.attempts.work(self.ref, grant).inputs["merge"] is True
        value: JsonValue = {
            "kind": "worktree", "shelf": f"{SHELF}/{self.id}", "merge": True,
            "target": f"refs/heads/{plan_branch(self.id)}", "home": "refs/heads/main",
        }  # fmt: skip
        self.world.settle(self.ref, grant, Outcome(word="succeeded", value=value))

    def accept(self, task: str) -> None:
        """Carry out the task's own session to its end."""
        child = self.child(task)
        self.world.settle(child, self.world.grant(child, "workspace"))
        self.finish(task)
        self.world.settle(child, self.world.grant(child, "keep"))

    def merge(self, task: str) -> SessionRef:
        """The session that merges a task."""
        merge = self.task(task).merge
        assert merge is not None
        assert merge.session is not None
        return SessionRef(merge.session, self.id)

    def step(
        self, task: str, name: str, value: JsonValue = None, **more: object
    ) -> Sequence[Grant]:
        """Settle the next step of a merge, which must be the named one."""
        ref = self.merge(task)
        found = [one for one in self.engine.store.members(ref, "live") if one.endswith(name)]
        assert found, (name, self.engine.store.members(ref, "live"))
        outcome = Outcome.model_validate({"word": "succeeded", "value": value, **more})
        return self.world.settle(ref, self.world.grant(ref, found[0]), outcome).grants

    def attempt(self, task: str, verdict: str = "accept", text: str = "") -> None:
        """Carry out one attempt, without a conflict."""
        self.step(task, "/rebase", {"rebased": {"new": "beef"}, "ask": None})
        self.step(task, "/resolve", word="skipped")
        self.step(task, "/commit", {"rebased": {"new": "beef"}, "checks": True})
        self.step(task, "/check.ok", verdict="accept")
        if verdict == "accept":
            fields = {"plan": self.id, "task": task, "merged": "beef", "into": plan_branch(self.id)}
            folders.record_of_task(self.engine, {**fields, "run": 1, "tip": "cafe"})
        self.step(task, "/land", {"feedback": "no"}, verdict=verdict, text=text)

    def land(self, task: str) -> None:
        self.step(task, "/begin")
        self.attempt(task)
        self.step(task, "/after", verdict="accept")


@pytest.fixture
def plan(world: World, tmp_path: Path) -> Merging:
    return start(world, tmp_path)


def start(world: World, tmp_path: Path, **more: object) -> Merging:
    plan = Merging(world, TASKS, cwd=str(tmp_path), task_retries=0, at_once=1, **more)
    plan.survey()
    plan.begin()
    return plan


def test_dependants_wait_for_the_merge_and_are_told_the_commit(
    bench: Bench, tmp_path: Path
) -> None:
    plan = start(World.of(bench), tmp_path)
    plan.accept("a")
    assert (plan.task("a").state, plan.seen("a").verified, plan.seen("b").session) == (
        "merging", False, None,
    )  # fmt: skip
    assert plan.seen("c").session is not None  # a merge takes no place from those at work
    plan.accept("c")
    fields = plan.engine.store.fields(plan.merge("a"))
    assert fields["cwd"] == f"{SHELF}/{plan.id}/.merge"
    assert fields["name"] == "merge/a"
    plan.land("a")
    assert (plan.seen("a").verified, plan.seen("a").status) == (True, "completed")
    assert plan.engine.queries.session(plan.merge("a").id).status == "completed"
    program = plan.engine.registry.program(plan.engine.store.fields(plan.child("b"))["program"])
    prompt = str(program.step("loop/do").inputs["task"])
    assert "(commit beef)" in prompt
    assert "your folder has it already" in prompt


def test_merges_of_one_plan_queue_for_their_folder(bench: Bench, tmp_path: Path) -> None:
    plan = start(World.of(bench), tmp_path)
    plan.accept("a")
    plan.accept("c")
    plan.step("a", "/begin")
    plan.step("c", "/begin")
    plan.step("a", "/rebase", {"rebased": {"new": "beef"}, "ask": None})
    ref = plan.merge("c")
    (rebase,) = plan.engine.store.members(ref, "live")
    refused = plan.engine.attempts.claim(ref, rebase, nonce="n", worker="w")
    assert (refused.word, refused.why) == ("refused", "lock")
    plan.step("a", "/resolve", word="skipped")
    plan.step("a", "/commit", {"rebased": {"new": "beef"}, "checks": True})
    plan.step("a", "/check.ok", verdict="accept")
    plan.step("a", "/land", verdict="accept")
    plan.attempt("c")  # the first one holds nothing any more, though it has not ended


def test_person_is_asked_after_the_resolver_and_gives_up(plan: Merging) -> None:
    plan.accept("a")
    plan.step("a", "/begin")
    for _ in range(4):
        plan.attempt("a", "retry")
    merge = plan.merge("a")
    after: JsonValue = {"question": "What?", "refused": "x", "code": "conflict"}
    (ask,) = plan.step("a", "/after", after)
    assert park(plan.engine, plan.engine.attempts.work(merge, ask)) is None
    assert plan.engine.queries.session(merge.id).status == "waiting"
    plan.engine.answers.give(merge.id, "give up")
    ref = plan.merge("a")
    (begin,) = plan.engine.store.members(ref, "live")
    grant = plan.world.grant(ref, begin)
    inputs = plan.engine.attempts.work(ref, grant).inputs
    assert (inputs["choice"], inputs["refused"], inputs["code"]) == ("give up", "x", "conflict")
    reason = Reason(code=ReasonCode.CONFLICT, text="given up: x")
    plan.world.settle(ref, grant, Outcome(word="failed", reason=reason, retryable=False))
    seen = plan.seen("a")
    assert seen.reason is not None
    assert (seen.status, seen.reason.code, seen.reason.text) == (
        "failed",
        "conflict",
        "given up: x",
    )
    assert plan.seen("b").status == "blocked"


def test_resolver_that_changes_protected_files_ends_the_merge_and_fails_the_task(
    world: World, tmp_path: Path
) -> None:
    plan = start(world, tmp_path, protected=["tests/"])
    child = plan.child("a")
    world.settle(child, world.grant(child, "workspace"))
    recorded: JsonValue = {"count": 0, "digests": "x"}
    before = Outcome(word="succeeded", value=recorded)
    world.settle(child, world.grant(child, "protect"), before)
    do = world.grant(child, "loop~1[1]/do")
    given = plan.engine.attempts.work(child, do).inputs["protected"]
    assert isinstance(given, dict)
    assert given["patterns"] == [{"pattern": "tests/", "allow": []}]
    world.settle(child, do)
    accepted = Outcome(word="succeeded", verdict="accept")
    answer = world.settle(child, world.grant(child, f"loop~1[1]/{CHECK}"), accepted)
    world.settle(child, world.judge(child, answer), accepted)
    world.settle(child, world.grant(child, "keep"))
    plan.step("a", "/begin")
    plan.step("a", "/rebase", {"rebased": None, "ask": "Resolve it."})
    plan.step("a", "/protect", recorded)
    merge = plan.merge("a")
    (at,) = plan.engine.store.members(merge, "live")
    resolve = world.grant(merge, at)
    given = plan.engine.attempts.work(merge, resolve).inputs["protected"]
    assert isinstance(given, dict)
    assert isinstance(given["before"], dict)
    assert given["before"]["value"] == recorded
    reason = Reason(code=ReasonCode.TAMPERED, text="a test was changed")
    cheat = Outcome(word="succeeded", verdict="terminate", reason=reason)
    world.settle(merge, resolve, cheat)
    seen = plan.seen("a")
    assert seen.reason is not None
    assert (seen.status, seen.reason.root.code) == ("failed", "tampered")


def test_failed_merge_is_resumed_and_unblocks_what_waits(plan: Merging) -> None:
    plan.accept("a")
    plan.engine.control.apply(plan.merge("a").id, "stop")
    assert plan.seen("a").status == "failed"
    plan.engine.control.apply(plan.merge("a").id, "resume")
    assert plan.task("a").state == "merging"
    plan.land("a")
    plan.accept("c")
    assert plan.seen("b").session is not None


def test_work_comes_home_by_sessions_of_one_step(plan: Merging) -> None:
    plan.accept("a")
    plan.accept("c")
    plan.land("a")
    (receipt, waits) = plans.list_merges(plan.engine, plan.id)
    assert (receipt.state, receipt.commit, receipt.into) == ("merged", "beef", plan_branch(plan.id))
    assert (waits.state, waits.commit) == ("merging", None)
    kept = folders.clean_of_plan(plan.engine, plan.id, ["c"], force=True)
    assert [one.kept for one in kept.failed] == ["its work is being merged"]

    def work(session: str) -> Work:
        ref = SessionRef(session, session)
        (step,) = plan.engine.store.members(ref, "live")
        return plan.engine.attempts.work(ref, plan.world.grant(ref, step))

    def inputs(session: str) -> dict[str, JsonValue]:
        return dict(work(session).inputs)

    environment = SessionEnvironment(passed={"A": "b"})
    given = work(plans.apply_work(plan.engine, plan.id, "main", environment).session)
    assert given.environment == environment
    applied = given.inputs
    assert (applied["source"], applied["target"]) == (plan_branch(plan.id), "main")
    branch, home = f"refs/heads/{plan_branch(plan.id)}", "refs/heads/main"
    found = inputs(plans.compare_work(plan.engine, plan.id, None, unmerged=False).session)
    assert found["pairs"] == [[home, branch]]
    found = inputs(plans.compare_work(plan.engine, plan.id, None, unmerged=True).session)
    assert found["pairs"] == [[branch, f"refs/heads/leadhand/{plan.id}/{one}"] for one in "bc"]
    with pytest.raises(PlanRefused, match="no such task"):
        plans.compare_work(plan.engine, plan.id, "nope", unmerged=False)


def test_plan_without_merges_has_nothing_to_apply(world: World, tmp_path: Path) -> None:
    plan = PlanWorld(world, TASKS, cwd=str(tmp_path), workspace="shared")
    plan.begin()
    with pytest.raises(PlanRefused, match="it merges nothing"):
        plans.apply_work(plan.engine, plan.id)


def test_merge_that_left_the_outbox_is_queued_again(world: World, plan: Merging) -> None:
    store = plan.engine.store
    deliver = plan.engine.outbox.run
    # The process that is to create the merge dies.
    plan.engine.transitions.deliver = lambda one: None if "merge/" in one else deliver(one)
    plan.accept("a")
    store.remove_errand(f"spawn|{plan.ref.member}merge/a~1")
    plan.engine.transitions.deliver = deliver
    found = audit(world.engine.audit.run, repair=True)
    assert {one.kind for one in found.items} == {"task_stuck"}
    world.later(1_000)
    plan.land("a")
    assert plan.seen("a").verified


def test_each_attempt_of_a_merge_is_in_the_ledger(plan: Merging) -> None:
    plan.accept("a")
    plan.step("a", "/begin")
    plan.attempt("a", "retry", text="2 failed")
    plan.attempt("a", text="it is merged")
    plan.step("a", "/after", verdict="accept", text="it is merged")
    lines = plan.engine.store.lines(plan.merge("a"), "ledger", 0, -1)
    found = [LedgerEntry.model_validate_json(line) for line in lines]
    assert [(one.loop, one.iteration, one.verdict, one.feedback) for one in found] == [
        ("merge/attempt", 1, "retry", "2 failed"),
        ("merge/attempt", 2, "accept", "it is merged"),
        ("merge", 1, "accept", "it is merged"),
    ]
