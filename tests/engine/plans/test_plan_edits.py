"""Edits of a plan: all of an edit or none of it, and never of what has started."""

from __future__ import annotations

import pytest

from app.core.outcomes import Outcome
from app.plans import plans
from leadhand.errors import AnswerUnwanted, NoPlan, PlanChanged, PlanRefused
from leadhand.models.documents import LoopDocument
from tests.engine.driving import Bench
from tests.engine.plans.plan_world import PlanWorld
from tests.engine.world import World

CHAIN = ({"id": "a"}, {"id": "b", "dependencies": ["a"]}, {"id": "c", "dependencies": ["b"]})


def drafted(bench: Bench) -> PlanWorld:
    """A plan that waits for approval."""
    plan = PlanWorld(World.of(bench), CHAIN, refine=True)
    plan.draft("drafting~1[1]/decompose")
    return plan


def test_a_draft_waits_for_approval_and_starts_nothing(bench: Bench) -> None:
    draft = drafted(bench)
    assert (draft.view.state, draft.status) == ("refining", "waiting")
    assert draft.statuses() == {"a": "pending", "b": "pending", "c": "pending"}
    assert draft.engine.store.children(draft.ref) == set()


def test_an_approved_draft_is_executed_as_it_was_edited(bench: Bench) -> None:
    draft = drafted(bench)
    draft.edit({"op": "drop", "id": "c"}, {"op": "change", "id": "b", "dependencies": []})
    plans.approve(draft.engine, draft.id, by="ann")
    draft.park("execute")
    assert draft.at_work() == {"a", "b"}
    draft.finish("a")
    draft.finish("b")
    assert draft.status == "completed"


@pytest.mark.parametrize(("said", "state"), [("Approve", "execute"), ("Split b", "decompose")])
def test_an_answer_as_text_approves_or_asks_for_another_draft(
    bench: Bench, said: str, state: str
) -> None:
    draft = drafted(bench)
    draft.engine.answers.give(draft.id, said, by="ann")
    (live,) = draft.engine.store.members(draft.ref, "live")
    assert live.rpartition("/")[2] == state


def test_a_wanted_change_gives_the_next_draft_the_text_and_the_edited_tasks(
    bench: Bench,
) -> None:
    draft = drafted(bench)
    draft.edit({"op": "change", "id": "a", "title": "As I want it"})
    plans.reject(draft.engine, draft.id, "split b", by="ann")
    grant = draft.world.grant(draft.ref, "drafting~1[2]/decompose")
    inputs = draft.engine.attempts.work(draft.ref, grant).inputs
    assert inputs["change"] == "split b"
    assert isinstance(inputs["current"], list)
    assert inputs["current"][0] == {"id": "a", "title": "As I want it"}


def test_the_next_draft_replaces_the_tasks(bench: Bench) -> None:
    draft = drafted(bench)
    plans.reject(draft.engine, draft.id, "one task is enough", by="ann")
    world = draft.world
    grant = world.grant(draft.ref, "drafting~1[2]/decompose")
    draft_of_one = Outcome(
        word="succeeded", value={"tasks": [{"id": "only", "title": "All of it"}]}
    )
    (granted,) = world.settle(draft.ref, grant, draft_of_one).grants
    draft._park(granted)
    assert draft.statuses() == {"only": "pending"}


def test_a_second_approval_is_told_who_was_first(bench: Bench) -> None:
    draft = drafted(bench)
    plans.approve(draft.engine, draft.id, by="ann")
    with pytest.raises(AnswerUnwanted):
        plans.approve(draft.engine, draft.id, by="bob")


@pytest.mark.parametrize(
    ("operations", "task", "why"),
    [
        ([{"op": "drop", "id": "x"}], "x", "has no task x"),
        ([{"op": "drop", "id": "a"}], "a", "task b depends on it"),
        ([{"op": "change", "id": "a", "dependencies": ["c"]}], "a", "in a cycle: a -> c -> b -> a"),
        ([{"op": "change", "id": "a", "dependencies": ["x"]}], "a", "depends on x, which is no"),
        ([{"op": "add", "task": {"id": "a", "title": "again"}}], "a", "has a task of this id"),
        ([{"op": "move", "id": "a", "after": "x"}], "x", "has no task x"),
        ([{"op": "retry", "id": "a"}], "a", "only a task that failed can be retried"),
        ([{"op": "change", "id": "a", "checkers": ["no"]}], "a", "names the checker 'no'"),
        (
            [{"op": "add", "task": {"id": "n", "title": "n", "checkers": ["no"]}}],
            "n",
            "it has ok",
        ),
    ],
)
def test_an_edit_that_does_not_fit_is_refused_as_a_whole(
    bench: Bench, operations: list[dict[str, object]], task: str, why: str
) -> None:
    draft = drafted(bench)
    before = draft.engine.store.plan(draft.ref)
    fits = {"op": "add", "task": {"id": "new", "title": "fits"}}
    with pytest.raises(PlanRefused) as refused:
        draft.edit(fits, *operations)
    assert refused.value.what == task
    assert why in refused.value.why
    assert draft.engine.store.plan(draft.ref) == before


def test_a_cycle_is_refused(bench: Bench) -> None:
    draft = drafted(bench)
    with pytest.raises(PlanRefused, match="in a cycle"):
        draft.edit({"op": "change", "id": "a", "dependencies": ["c"]})


def test_an_edit_of_an_older_version_is_refused_with_the_newer_one(bench: Bench) -> None:
    draft = drafted(bench)
    seen = draft.view.version
    draft.edit({"op": "change", "id": "a", "title": "new"}, version=seen)
    with pytest.raises(PlanChanged) as stale:
        draft.edit({"op": "change", "id": "a", "title": "newer"}, version=seen)
    assert f"is at version {seen + 1} now" in str(stale.value)
    assert draft.seen("a").title == "new"


def test_a_task_moves_behind_another_or_to_the_front(bench: Bench) -> None:
    draft = drafted(bench)

    def order() -> list[str]:
        return [task.id for task in draft.view.tasks]

    draft.edit({"op": "move", "id": "a", "after": "b"})
    assert order() == ["b", "a", "c"]
    draft.edit({"op": "move", "id": "c"})
    assert order() == ["c", "b", "a"]


def test_what_has_started_is_frozen_but_for_notes_and_priority(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, CHAIN)
    plan.begin()
    for operation in (
        {"op": "change", "id": "a", "description": "other"},
        {"op": "change", "id": "a", "dependencies": []},
        {"op": "drop", "id": "a"},
    ):
        with pytest.raises(PlanRefused, match="it has started"):
            plan.edit(operation)
    plan.edit({"op": "change", "id": "a", "notes": "look here", "priority": 0})
    assert (plan.seen("a").notes, plan.seen("a").priority) == ("look here", 0)


def test_a_task_that_is_added_while_the_plan_executes_starts_when_it_may(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, CHAIN)
    plan.begin()
    task = {"id": "side", "title": "Beside"}
    after = {"id": "after", "title": "After a", "dependencies": ["a"]}
    plan.edit({"op": "add", "task": task}, {"op": "add", "task": after})
    assert plan.at_work() == {"a", "side"}
    plan.finish("a")
    assert plan.at_work() == {"b", "side", "after"}


def test_a_failed_task_that_is_retried_by_a_person_has_its_retries_again(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, [{"id": "a"}, {"id": "b"}], task_retries=0)
    plan.begin()
    plan.fail("a")
    plan.edit({"op": "retry", "id": "a"})
    assert plan.at_work() == {"a", "b"}
    assert plan.task("a").run == 2


def test_a_session_of_another_kind_has_no_plan(bench: Bench) -> None:
    world = World.of(bench)
    given = {"task": "t", "checkers": ["true"], "doer": {"command": "true"}}
    session = world.engine.submit.document(LoopDocument.model_validate(given)).session
    with pytest.raises(NoPlan, match="it is a loop"):
        plans.show(world.engine, session)


def test_a_plan_without_a_draft_shows_none_and_takes_no_edit(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, CHAIN, refine=True)
    assert (plan.view.state, plan.view.tasks, plan.view.version) == ("planning", [], 0)
    with pytest.raises(NoPlan, match="not drafted"):
        plan.edit({"op": "drop", "id": "a"})


@pytest.mark.parametrize(("default", "status"), [("stop", "stopped"), ("approve", "waiting")])
def test_a_deadline_that_passes_stops_the_plan_or_approves_it(
    bench: Bench, default: str, status: str
) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, CHAIN, refine=True, refine_timeout_s=60.0, on_deadline=default)
    plan.draft("drafting~1[1]/decompose")
    world.later(61_000)
    if default == "approve":
        plan.park("execute")
        assert plan.at_work() == {"a"}
    assert plan.status == status


def test_a_plan_that_its_deadline_stopped_waits_anew_after_a_resume(bench: Bench) -> None:
    world = World.of(bench)
    plan = PlanWorld(world, CHAIN, refine=True, refine_timeout_s=60.0)
    plan.draft("drafting~1[1]/decompose")
    world.later(61_000)
    view = world.engine.queries.session(plan.id)
    assert view.reason is not None
    assert view.reason.code == "deadline"
    world.engine.control.apply(plan.id, "resume")
    assert plan.view.state == "refining"
    world.later(30_000)
    plans.approve(plan.engine, plan.id, by="ann")
    plan.park("execute")
    assert plan.at_work() == {"a"}


def test_an_edit_of_a_thousand_operations_reads_the_plan_once(bench: Bench) -> None:
    chain = [{"id": f"t{n}", "dependencies": [f"t{n - 1}"] if n else []} for n in range(100)]
    plan = PlanWorld(World.of(bench), chain, refine=True)
    plan.draft("drafting~1[1]/decompose")

    def reads() -> int:
        found = bench.redis.info("commandstats")
        return sum(found[f"cmdstat_{name}"]["calls"] for name in ("hkeys", "hget"))

    before = reads()
    plan.edit({"op": "move", "id": "t0"})
    one, before = reads() - before, reads()
    plan.edit(
        *({"op": "move", "id": f"t{n % 99}", "after": "t99"} for n in range(800)),
        *(
            op
            for n in reversed(range(1, 100))
            for op in (
                {"op": "drop", "id": f"t{n}"},
                {"op": "add", "task": {"id": f"t{n}", "title": "x", "dependencies": ["t0"]}},
            )
        ),
    )
    assert reads() - before <= one + 100
    expected = [*(f"t{n}" for n in reversed(range(1, 100)))]
    assert [task.id for task in plan.record.tasks if task.id != "t0"] == expected


@pytest.mark.parametrize(
    ("operations", "holder"),
    [
        ([{"op": "change", "id": "c", "dependencies": ["a"]}, {"op": "drop", "id": "b"}], "c"),
        ([{"op": "drop", "id": "c"}, {"op": "change", "id": "b", "dependencies": []},
          {"op": "add", "task": {"id": "d", "title": "D", "dependencies": ["a"]}}], "d"),
        ([{"op": "drop", "id": "c"}, {"op": "drop", "id": "b"}], None),
    ],
)  # fmt: skip
def test_a_drop_counts_what_the_same_edit_has_changed(
    bench: Bench, operations: list[dict[str, object]], holder: str | None
) -> None:
    draft = drafted(bench)
    operations = [*operations, {"op": "add", "task": {"id": "z", "title": "Z"}}]
    if holder is not None:
        with pytest.raises(PlanRefused, match=f"task {holder} depends on it"):
            draft.edit(*operations, {"op": "drop", "id": "a"})
        operations.append({"op": "change", "id": holder, "dependencies": []})
    draft.edit(*operations, {"op": "drop", "id": "a"})
    assert "a" not in draft.statuses()
