"""Steps with the joins `always` and `ended`, which run although the session fails or stops."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app import shared
from leadhand.graphs.documents import GraphDocument
from tests.engine.children.test_body_children import Body
from tests.engine.driving import LEASE_MS, Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World

WORK: dict[str, Any] = {"name": "work"}
CLEAN: dict[str, Any] = {"name": "clean", "join": "always"}
AFTER: dict[str, Any] = {"name": "after", "depends_on": ["work"]}


def graph(bench: Bench, *steps: dict[str, Any]) -> GraphWorld:
    return GraphWorld(World.of(bench), steps)


def broken(**_: Any) -> None:
    raise ValueError("it is broken")


def test_step_that_always_runs_comes_after_all_others(bench: Bench) -> None:
    world = graph(bench, CLEAN, WORK, AFTER, {"name": "beside"})
    world.run()
    assert (world.status, world.called[-1], len(world.called)) == ("completed", "clean", 4)


def test_step_that_always_runs_does_so_after_a_critical_failure(bench: Bench) -> None:
    second = {**CLEAN, "name": "tell", "depends_on": ["clean"]}
    world = graph(bench, WORK, AFTER, CLEAN, second)
    world.run(work=broken)
    assert world.called == ["work", "clean", "tell"]
    assert world.status == "failed"
    assert world.result.reason is not None
    assert world.result.reason.text == "it is broken"
    assert world.result.results["clean"] == {}


def test_failure_of_the_last_step_leaves_the_reason_of_the_session(bench: Bench) -> None:
    world = graph(bench, WORK, CLEAN)
    world.run(work=broken, clean=lambda: [][0])
    view = world.engine.queries.session(world.id)
    assert view.reason is not None
    assert (view.status, view.reason.text) == ("failed", "it is broken")
    assert any("clean" in one for one in view.warnings)


def test_step_beside_the_failure_ends_before_the_last_one_starts(bench: Bench) -> None:
    world = graph(bench, WORK, {"name": "beside"}, CLEAN)
    beside = world.grant("beside")
    world.carry_out(world.grant("work"), {"work": broken})
    assert sorted(world.engine.store.names(world.ref, "steps")) == ["beside", "work"]
    assert world.engine.attempts.beat(world.ref, beside).word == "cancel"
    world.engine.attempts.release(world.ref, beside, why="cancelled")
    world.run()
    assert (world.called, world.status) == (["work", "clean"], "failed")


def test_resume_after_a_failure_runs_the_last_step_again_at_the_end(bench: Bench) -> None:
    world = graph(bench, WORK, AFTER, {**CLEAN, "depends_on": ["after"]})
    world.run(work=broken)
    assert world.called == ["work", "clean"]
    world.calls.clear()
    world.engine.control.apply(world.id, "resume")
    world.run()
    assert (world.called, world.status) == (["work", "after", "clean"], "completed")


def test_stop_is_acknowledged_once_the_last_step_has_ended(bench: Bench) -> None:
    world = graph(bench, WORK, AFTER, CLEAN)
    work = world.grant("work")
    world.engine.control.apply(world.id, "stop")
    assert world.engine.attempts.beat(world.ref, work).word == "stop"
    world.engine.attempts.release(world.ref, work, why="stop")
    assert world.status == "stopping"
    grant = world.grant("clean")
    assert world.engine.attempts.beat(world.ref, grant).word == "ok"
    world.carry_out(grant, {})
    assert world.status == "stopped"
    world.world.hints.clear()
    world.engine.control.apply(world.id, "resume")
    world.run()
    assert (world.called, world.status) == (["clean", "work", "after", "clean"], "completed")


def test_stop_between_two_steps_keeps_what_has_arrived(bench: Bench) -> None:
    world = graph(bench, WORK, {"name": "beside"}, {**CLEAN, "depends_on": ["work", "beside"]})
    world.carry_out(world.grant("work"), {})
    world.engine.control.apply(world.id, "stop")
    world.carry_out(world.grant("clean"), {})
    assert world.status == "stopped"
    world.world.hints.clear()
    world.engine.control.apply(world.id, "resume")
    world.run()
    assert (world.called, world.status) == (["work", "clean", "beside", "clean"], "completed")


def test_last_step_whose_worker_is_lost_runs_again(bench: Bench) -> None:
    world = graph(bench, WORK, CLEAN)
    world.engine.control.apply(world.id, "stop")
    world.grant("clean")
    world.world.hints.clear()
    world.world.later(LEASE_MS + 2_000)
    world.world.later(60_000)
    assert world.status == "stopping"
    world.run()
    assert (world.called, world.status) == (["clean"], "stopped")


def fail_once(world: GraphWorld) -> None:
    """The root is closing, and the last step waits for its retry."""
    world.carry_out(world.grant("work"), {"work": broken})
    world.carry_out(world.grant("clean"), {"clean": broken})
    world.world.hints.clear()
    world.engine.control.apply(world.id, "stop")


def test_stop_of_a_session_that_ends_keeps_the_retry_of_its_last_step(bench: Bench) -> None:
    world = graph(bench, WORK, {**CLEAN, "retries": 1, "backoff_s": 30})
    fail_once(world)
    assert (world.status, world.ready()) == ("stopping", [])
    world.world.later(30_000)
    world.run()
    assert (world.called, world.status) == (["work", "clean", "clean"], "failed")


def test_stop_of_a_session_that_ends_hints_its_last_step_again(bench: Bench) -> None:
    world = graph(bench, WORK, CLEAN)
    world.carry_out(world.grant("work"), {"work": broken})
    world.world.hints.clear()
    world.engine.control.apply(world.id, "stop")
    assert world.ready() == ["clean"]  # and that message is lost
    world.world.later(60_000)
    world.run()
    assert (world.called, world.status) == (["work", "clean"], "failed")


def test_last_step_that_was_ready_before_a_stop_is_hinted_once(bench: Bench) -> None:
    world = graph(bench, WORK, {**CLEAN, "depends_on": ["work"]})
    world.carry_out(world.grant("work"), {})
    world.world.hints.clear()
    world.engine.control.apply(world.id, "stop")
    assert world.ready() == ["clean"]


def audit(world: GraphWorld, *, repair: bool = False) -> list[str]:
    return [one.kind for one in world.engine.audit.run(repair=repair).items]


@pytest.mark.parametrize("end", ["stop", "exit"])
def test_audit_takes_a_last_step_that_waits_for_sound(bench: Bench, end: str) -> None:
    world = graph(bench, WORK, {**CLEAN, "retries": 1, "backoff_s": 30})
    world.engine.control.apply(world.id, end)  # type: ignore[arg-type]
    assert audit(world, repair=True) == []
    world.carry_out(world.grant("clean"), {"clean": broken})
    assert audit(world, repair=True) == []
    redis, ready = bench.redis, bench.store.keys.everywhere("ready")
    redis.zrem(ready, f"{world.ref.member}clean")
    assert audit(world, repair=True) == ["hint_lost"]
    assert redis.zscore(ready, f"{world.ref.member}clean") is not None
    assert audit(world) == []


def test_audit_mends_the_line_of_a_last_step(bench: Bench) -> None:
    world = graph(bench, WORK, CLEAN)
    world.engine.control.apply(world.id, "stop")
    keys = bench.store.keys
    (slot,) = bench.redis.zrange(keys.part(world.ref, "hinted"), 0, -1)
    queue, address = slot.split("<")
    bench.redis.delete(keys.part(world.ref, "hinted"))
    bench.redis.zrem(keys.everywhere("ready"), f"{world.ref.member}clean")
    bench.redis.zadd(keys.part(world.ref, "waiting"), {f"{queue}<000000000001<{address}": 0})
    assert audit(world, repair=True) == ["line_stuck"]
    assert audit(world) == []


def test_audit_takes_the_ticket_of_a_last_step_for_sound(bench: Bench) -> None:
    agent = {**CLEAN, "tool": "agent:shell", "arguments": {"prompt": "clean"}}
    worlds = [graph(bench, WORK, agent) for _ in range(2)]
    shared.set_limit(worlds[0].engine, "agent:shell", concurrency=1)
    for world in worlds:
        world.engine.control.apply(world.id, "stop")
    worlds[0].grant("clean")
    assert worlds[1].world.claim(worlds[1].ref, "clean").why == "lock"
    assert audit(worlds[1], repair=True) == []


def test_last_step_is_retried_while_the_session_ends(bench: Bench) -> None:
    world = graph(bench, WORK, {**CLEAN, "retries": 1, "backoff_s": 0})
    tries = iter((broken, lambda: "done"))
    world.run(work=broken, clean=lambda: next(tries)())
    assert (world.called, world.status) == (["work", "clean", "clean"], "failed")
    assert world.result.results["clean"] == "done"


def test_exit_runs_the_last_step_and_abort_does_not(bench: Bench) -> None:
    world = graph(bench, WORK, CLEAN)
    world.engine.control.apply(world.id, "exit", reason="enough")
    world.world.hints[:] = [one for one in world.world.hints if one[1] == "clean"]
    world.run()
    assert (world.called, world.status) == (["clean"], "exited")
    world = graph(bench, WORK, CLEAN)
    world.engine.control.apply(world.id, "stop")
    world.engine.control.apply(world.id, "abort")
    world.run()
    assert (world.called, world.status) == ([], "aborted")


def test_abort_cancels_a_last_step_that_runs(bench: Bench) -> None:
    world = graph(bench, WORK, CLEAN)
    world.engine.control.apply(world.id, "stop")
    grant = world.grant("clean")
    world.engine.control.apply(world.id, "abort")
    assert world.engine.attempts.beat(world.ref, grant).word == "cancel"
    world.engine.attempts.release(world.ref, grant, why="cancelled")
    assert world.status == "aborted"


def with_child_of_a_last_step(bench: Bench) -> tuple[GraphWorld, Body, str]:
    """Two last steps of a session that has failed; the body of the first has started a child."""
    world = graph(bench, WORK, CLEAN, {**CLEAN, "name": "tell"})
    world.carry_out(world.grant("work"), {"work": broken})
    body = Body(world.world, world.ref, "clean")
    return world, body, body.spawn().id


def end_the_first(world: GraphWorld, body: Body, child: str) -> None:
    """Its child is aborted with it, and the session ends after the child."""
    world.carry_out(body.grant, {})
    assert world.engine.queries.session(child).status == "aborted"
    world.world.later(2_000)
    assert world.status == "failed"


def test_child_of_a_last_step_continues_when_another_last_step_ends(bench: Bench) -> None:
    world, body, child = with_child_of_a_last_step(bench)
    world.carry_out(world.grant("tell"), {})
    world.world.later(2_000)
    assert world.engine.queries.session(child).status == "active"
    end_the_first(world, body, child)


def test_stop_leaves_the_child_of_a_last_step_at_work(bench: Bench) -> None:
    world, body, child = with_child_of_a_last_step(bench)
    world.engine.control.apply(world.id, "stop")
    world.world.later(2_000)
    assert world.engine.queries.session(child).status == "active"
    world.carry_out(world.grant("tell"), {})
    end_the_first(world, body, child)


def test_abort_aborts_the_child_of_a_last_step(bench: Bench) -> None:
    world, _, child = with_child_of_a_last_step(bench)
    world.engine.control.apply(world.id, "abort")
    assert world.engine.queries.session(child).status == "aborted"


def test_join_ended_runs_after_a_critical_failure_of_what_it_waits_for(bench: Bench) -> None:
    told = {"name": "told", "depends_on": ["work"], "join": "ended"}
    late = {"name": "late", "depends_on": ["after"], "join": "ended"}
    world = graph(bench, WORK, AFTER, told, late)
    world.run(work=broken)
    assert (world.called, world.status) == (["work", "told"], "failed")
    world = graph(bench, WORK, told)
    world.engine.control.apply(world.id, "stop")
    assert world.status == "stopped"


def test_join_ended_fails_if_it_refers_to_the_failed_step_until_that_succeeds(
    bench: Bench,
) -> None:
    world = graph(bench, WORK, {"name": "told", "arguments": {"n": "${work.n}"}, "join": "ended"})
    world.run(work=broken)
    assert (world.called, world.status) == (["work"], "failed")
    assert world.result.reason is not None
    assert world.result.reason.text == "it is broken"
    assert any("the step failed: it is broken" in one for one in world.result.warnings)
    world.engine.control.apply(world.id, "resume")
    world.run(work=lambda: {"n": 3})
    assert (world.status, world.result.results["told"]) == ("completed", {"n": 3})


def test_only_a_single_call_can_always_run() -> None:
    each = {"tool": "echo", "for_each": [1], **CLEAN}
    with pytest.raises(ValidationError, match="only a single call can always run"):
        GraphDocument.model_validate({"steps": [each]})


def test_graph_has_at_most_a_hundred_last_steps() -> None:
    steps = [{"name": f"s{n}", "tool": "echo", "join": "always"} for n in range(100)]
    told = {"name": "told", "tool": "echo", "join": "ended"}
    GraphDocument.model_validate({"steps": [*steps, {**told, "for_each": [1]}]})
    with pytest.raises(ValidationError, match=r"steps\[100\].join: .*101 steps run at the end"):
        GraphDocument.model_validate({"steps": [*steps, told]})
