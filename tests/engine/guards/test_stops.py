"""Stop guards on the real scripts: counters, one hook at a time, restarts and the ledger."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pydantic import JsonValue

from app import guards
from app.guards import IDLE_S, OPEN_INSIDE, Guarded
from app.security.api_tokens import Owner
from leadhand.errors import LabelTaken, QuotaPassed
from leadhand.models.guards import AgentEvent
from leadhand.models.views.fleet import Quotas
from tests.engine.driving import Bench
from tests.engine.guards.stops import (
    AGENT,
    begin,
    gate,
    guard_of,
    ledger_of,
    question,
    report,
    stop,
)
from tests.engine.test_fsck import audit
from tests.engine.world import World
from tests.silent_engine import loop
from workers.attempt.settle import park


@pytest.fixture
def world(bench: Bench) -> World:
    return World.of(bench)


def test_first_stop_makes_a_guard_that_has_failed_at_nothing(world: World) -> None:
    view = begin(world, "one")
    assert (view.state, view.attempt, view.why) == ("run", 1, "the first check")
    guard = guard_of(world)
    assert (guard.active, guard.stops, guard.stage) == (True, 0, "build")
    assert (guard.retries, guard.last, guard.limit_reached) == ({}, {}, None)


def test_failures_count_across_restarts_of_the_server(bench: Bench, world: World) -> None:
    assert stop(world, gate()).text.startswith("The build fails (attempt 1 of 5)")
    anew = World.of(bench)
    second = stop(anew, gate())
    assert second.decision == "block"
    assert second.text.startswith("The build fails (attempt 2 of 5)")
    view = begin(World.of(bench), "three")
    assert (view.attempt, view.why) == (3, "verifying a fix of build")


def test_agent_sessions_have_guards_of_their_own(world: World) -> None:
    stop(world, gate())
    other = Guarded("agent-2")
    inside = Guarded("agent-1", "0000000a")
    assert stop(world, gate(), guarded=other).attempt == 1
    assert stop(world, gate(), guarded=inside).attempt == 1
    listed = guards.list_guards(world.engine, None)
    assert (listed.total, listed.active) == (3, 0)
    assert {one.inside for one in listed.items} == {None, "0000000a"}


def test_second_hook_is_told_that_one_runs_already(bench: Bench) -> None:
    world = World.of(bench)
    begin(world, "one")
    second = begin(world, "two")
    assert (second.state, second.why) == ("busy", "Stop hook already running")
    assert stop(world, gate(), stop="one").decision == "block"
    assert begin(world, "two").state == "run"


def test_of_ten_hooks_at_once_one_runs(bench: Bench, world: World) -> None:
    stop(world)  # the guard exists
    worlds = [World.of(bench) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        views = list(pool.map(lambda n: begin(worlds[n], f"hook-{n}"), range(10)))
    assert sorted(view.state for view in views) == ["busy"] * 9 + ["run"]


def test_ten_first_stops_at_once_make_one_guard(bench: Bench) -> None:
    worlds = [World.of(bench) for _ in range(10)]
    with ThreadPoolExecutor(10) as pool:
        views = list(pool.map(lambda n: begin(worlds[n], f"hook-{n}"), range(10)))
    assert len({view.guard for view in views}) == 1


def test_killed_hook_is_replaced_after_the_stale_timeout_and_not_before(bench: Bench) -> None:
    world = World.of(bench)
    begin(world, "killed")
    world.now += 299_999
    assert begin(world, "next").state == "busy"
    world.now += 1
    assert begin(world, "next").state == "run"
    late = guards.decide_stop(world.engine, AGENT, report(gate(), stop="killed"))
    assert late.state == "busy"  # what the replaced hook found counts for nothing
    assert guard_of(world).stops == 0
    assert stop(world, gate(), stop="next").attempt == 1


def test_limits_hold_for_a_hook_that_replaces_another(world: World) -> None:
    limits = {"stops": 1}
    stop(world, gate(), limits=limits)
    begin(world, "killed", limits={"stops": 2})
    world.now += 300_000
    view = begin(world, "next", limits=limits)
    assert view.state == "decided"
    assert view.decision is not None
    assert view.decision.text.startswith("Global stop limit reached (1)")


def test_same_stop_again_gets_the_same_decision_and_counts_once(bench: Bench) -> None:
    world = World.of(bench)
    stop(world, gate("lint"))
    first = guards.decide_stop(world.engine, AGENT, report(gate(), stop="one"))
    assert (first.attempt, first.why) != (1, "")
    assert (
        guards.decide_stop(world.engine, AGENT, report(gate(outcome="passed"), stop="one")) == first
    )
    assert begin(world, "one") == first
    assert guard_of(world).stops == 2
    assert len(ledger_of(world)) == 2


def test_each_stop_is_an_iteration_of_the_ledger_with_its_reasons(bench: Bench) -> None:
    world = World.of(bench)
    stop(world, gate("build"))
    stop(world, gate("build", "passed"), gate("test"))
    stop(world, gate("build", "passed"), gate("test", "passed"), gate("pr", "skipped"))
    entries = ledger_of(world)
    assert [(one.iteration, one.verdict) for one in entries] == [
        (1, "retry"), (2, "retry"), (3, "accept"),
    ]  # fmt: skip
    assert entries[0].feedback.startswith("The build fails (attempt 1 of 5)")
    assert entries[1].work == "stop 2: verifying a fix of build"
    assert [(c["name"], c["verdict"]) for c in entries[1].checks] == [
        ("build", "accept"), ("test", "retry"),
    ]  # fmt: skip
    assert entries[2].feedback == "All gates passed: build, test."
    assert world.engine.queries.session(guard_of(world).guard).counters.iterations == 3


def test_reason_of_a_limit_is_in_the_ledger(world: World) -> None:
    last = [stop(world, gate()) for _ in range(7)][-1]
    assert (last.decision, last.limit_reached) == ("allow", "stage")
    entry = ledger_of(world)[-1]
    assert entry.verdict == "max_iterations"
    assert entry.reason is not None
    assert entry.reason.code == "stop_limit"
    assert entry.reason.text.startswith("Stage limit reached (5)")


def test_block_that_the_agent_did_not_obey_is_recorded(world: World) -> None:
    stop(world, gate())
    guards.record_event(world.engine, AGENT, AgentEvent(event="prompt", prompt_id="p2"))
    guard = guard_of(world)
    assert (guard.overridden, guard.blocks_in_a_row) == (1, 0)
    warnings = world.engine.queries.session(guard.guard).warnings
    assert [one for one in warnings if "did not continue: a new prompt came" in one]
    guards.record_event(world.engine, AGENT, AgentEvent(event="end"))
    assert guard_of(world).overridden == 1


def test_event_of_an_unknown_agent_makes_no_guard(world: World) -> None:
    guards.record_event(world.engine, AGENT, AgentEvent(event="end"))
    assert guards.list_guards(world.engine, None).total == 0


def test_reset_begins_the_limits_again_and_frees_the_hook(bench: Bench) -> None:
    world = World.of(bench)
    for _ in range(6):
        stop(world, gate())
    begin(world, "killed")
    assert guards.reset_all(world.engine, AGENT.agent_session, by="ann").reset == 1
    guard = guard_of(world)
    assert (guard.failed_stops, guard.retries, guard.active, guard.stops) == (0, {}, False, 6)
    assert stop(world, gate()).attempt == 1
    assert world.told(world.engine.queries.ref(guard.guard), "guard.reset") == [
        (None, {"by": "ann"})
    ]


def test_reset_without_a_name_is_for_all_guards(world: World) -> None:
    stop(world, gate())
    stop(world, gate(), guarded=Guarded("agent-2"))
    assert guards.reset_all(world.engine, None, by="ann").reset == 2


def test_what_happened_while_the_api_was_away_is_recorded(world: World) -> None:
    stop(world, gate(outcome="passed"), missed=("a stop was allowed unchecked",))
    warnings = world.engine.queries.session(guard_of(world).guard).warnings
    assert warnings == ["while the API was away: a stop was allowed unchecked"]


def test_guard_without_stops_ends_completed_after_its_idle_time(bench: Bench) -> None:
    world = World.of(bench)
    stop(world, gate())
    guard = guard_of(world).guard
    ref = world.engine.queries.ref(guard)
    park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "stop")))
    world.now += (IDLE_S - 10) * 1000
    stop(world, gate())  # begins the time again
    world.later(20_000)
    assert world.engine.queries.session(guard).status == "waiting"
    world.later(IDLE_S * 1000)
    assert world.engine.queries.session(guard).status == "completed"
    assert stop(world, gate()).attempt == 1
    assert guard_of(world).guard != guard


def test_operators_wall_budget_does_not_end_a_guard(bench: Bench) -> None:
    world = World.of(bench)
    stop(world, gate())
    guard = guard_of(world).guard
    ref = world.engine.queries.ref(guard)
    park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "stop")))
    days = round(world.engine.settings.budget_wall_s / (24 * 3600))
    for _ in range(days // 5 + 1):
        world.later(5 * 24 * 3600 * 1000)
        stop(world, gate(outcome="passed"))
    assert guard_of(world).guard == guard


def test_state_that_changed_meanwhile_is_not_written_over(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.engine.queries.ref(begin(world, "one").guard)
    guards.record_event(world.engine, AGENT, AgentEvent(event="prompt", prompt_id="p2"))
    arguments: dict[str, JsonValue] = {
        "stop": "one", "decision": "{}", "version": 0, "kind": "guard.decided", "idle_ms": 1,
    }  # fmt: skip
    written = world.engine.transitions.run("guard_write", ref, arguments, outcome="{}")
    assert written.word == "changed"
    assert stop(world, gate(), stop="one", prompt_id="p2").attempt == 1


def test_hook_that_was_replaced_while_it_decided_writes_nothing(bench: Bench) -> None:
    world = World.of(bench)
    begin(world, "killed")
    world.now += 300_000
    ref = world.engine.queries.ref(begin(world, "next").guard)
    arguments: dict[str, JsonValue] = {
        "stop": "killed", "decision": "{}", "version": 0, "kind": "guard.decided", "idle_ms": 1,
    }  # fmt: skip
    written = world.engine.transitions.run("guard_write", ref, arguments, outcome="{}")
    assert written.word == "superseded"


def test_reason_of_a_block_has_no_control_characters(world: World) -> None:
    output = "\x1b[31mred\x1b[0m\x00 \x1b]0;title\x07\x9bend\u202e"
    decision = stop(world, gate(output=output), templates={"fix-build-errors": "\0{output}"})
    assert decision.text == "red end"
    assert stop(world, unchecked="no\x1b[2Jthing\0").text == "Not checked: nothing"


def test_stopped_guard_is_replaced_by_a_new_one(world: World) -> None:
    stop(world, gate())
    guard = guard_of(world).guard
    world.engine.control.apply(guard, "stop")
    assert stop(world, gate()).attempt == 1
    assert guard_of(world).guard != guard


def test_label_of_a_user_is_not_taken_for_a_guard(world: World) -> None:
    document = loop().model_copy(update={"label": "stop-guard::agent-1"})
    session = world.engine.submit.document(document).session
    assert begin(world, "one").guard != session
    with pytest.raises(LabelTaken):
        world.engine.submit.document(document)


def test_guard_needs_no_folder_so_that_it_shares_the_one_of_a_doer(world: World) -> None:
    view = begin(world, "one", guarded=Guarded("agent-1", "0000000a"))
    session = world.engine.queries.session(view.guard)
    assert (session.cwd, session.place, session.parent) == (None, "", None)
    assert question().gates is None


def test_guards_count_in_the_quota_of_the_token_that_makes_them(world: World) -> None:
    owner = Owner("token", Quotas(max_sessions=2))
    for name in ("agent-1", "agent-2", "agent-1"):
        stop(world, gate(), guarded=Guarded(name, owner=owner))
    with pytest.raises(QuotaPassed):
        begin(world, "one", guarded=Guarded("agent-3", owner=owner))
    world.engine.control.apply(guard_of(world).guard, "abort")
    stop(world, gate(), guarded=Guarded("agent-3", owner=owner))


def test_body_has_a_limited_number_of_open_guards(world: World) -> None:
    for number in range(OPEN_INSIDE):
        begin(world, "one", guarded=Guarded(f"agent-{number}", "0000000a"))
    with pytest.raises(QuotaPassed):
        begin(world, "one", guarded=Guarded("one-more", "0000000a"))
    assert begin(world, "one", guarded=Guarded("agent-0", "0000000a")).state == "run"
    assert begin(world, "one", guarded=Guarded("one-more", "0000000b")).state == "run"
    assert begin(world, "one", guarded=Guarded("one-more")).state == "run"
    assert audit(world.engine.audit.run).items == []
