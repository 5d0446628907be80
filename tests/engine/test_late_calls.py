"""Deadlines hold in the call that comes after them, also if no sweep has come before it."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.core.program import Action, Program, RetryPolicy, Step
from app.guards import IDLE_S
from app.sessions.submit import About
from leadhand.errors import AnswerUnwanted
from leadhand.models.documents import Budget
from leadhand.models.forms import AnswerRules, GivenAnswer
from tests.engine.driving import Bench
from tests.engine.guards.stops import begin, gate, guard_of, stop
from tests.engine.world import DONE, World
from workers.attempt.settle import park

ASK = Step(id="ask", action=Action.HUMAN, timeout_s=3, inputs={"question": "well?"})
WORK = Step(id="work", action=Action.TOOL, timeout_s=60, retry=RetryPolicy(retries=1, backoff_s=0))

NO_LIMIT = Budget()


def start(world: World, *body: Step, budget: Budget = NO_LIMIT) -> SessionRef:
    about = About(kind="flow", name="x", budget=budget)
    id_ = world.engine.submit.program(Program(body=body), about).session
    return SessionRef(id_, id_)


def asked(bench: Bench, step: Step = ASK) -> tuple[World, SessionRef]:
    world = World.of(bench)
    ref = start(world, step)
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "ask"))) is None
    return world, ref


def pass_time(world: World, ms: int) -> None:
    """Let time pass while others sweep, at last a second ago."""
    world.now += ms - 1000
    world.engine.store.due(every_ms=0, limit=9, grace_ms=0)
    world.now += 1000


def state(world: World, ref: SessionRef, step: str) -> tuple[str, str | None]:
    record = world.engine.store.steps(ref, [step])[step]
    return record.state, record.reason.code if record.reason else None


def test_answer_after_the_deadline_is_refused_and_the_step_has_failed(bench: Bench) -> None:
    world, ref = asked(bench)
    world.now += 14_000
    with pytest.raises(AnswerUnwanted, match="its deadline passed"):
        world.engine.answers.give(ref.id, "yes", by="ada")
    assert state(world, ref, "ask") == ("failed", "deadline")
    assert world.engine.queries.session(ref.id).status == "failed"
    assert "yes" not in str(world.engine.queries.transcript(ref.id))


def test_answer_in_time_is_accepted(bench: Bench) -> None:
    world, ref = asked(bench)
    world.now += 2_999
    world.engine.answers.give(ref.id, "yes", by="ada")
    assert state(world, ref, "ask") == ("succeeded", None)


def test_answer_after_the_deadline_gives_way_to_the_default(bench: Bench) -> None:
    rules = AnswerRules(choices=("a", "b"), default=GivenAnswer(choice="b"))
    inputs = {"question": "which?", "rules": rules.model_dump_json(exclude_none=True)}
    world, ref = asked(bench, ASK.model_copy(update={"inputs": inputs}))
    world.now += 14_000
    with pytest.raises(AnswerUnwanted, match="its deadline passed"):
        world.engine.answers.give(ref.id, GivenAnswer.model_validate({"choice": "a"}), by="ada")
    record = world.engine.store.steps(ref, ["ask"])["ask"]
    assert (record.state, record.answered_by) == ("succeeded", "deadline")
    assert '"choice":"b"' in world.engine.store.values(ref, "out", ["ask"])["ask"]


def test_answer_after_the_deadline_that_stops_the_session_says_to_resume_it(bench: Bench) -> None:
    inputs = {"question": "which?", "default": "stop"}
    world, ref = asked(bench, ASK.model_copy(update={"inputs": inputs}))
    world.now += 14_000
    with pytest.raises(AnswerUnwanted, match="resume it to be asked again"):
        world.engine.answers.give(ref.id, "yes", by="ada")
    assert world.engine.queries.session(ref.id).status == "stopped"


def test_outcome_of_an_attempt_that_beat_past_its_deadline_is_a_timeout(bench: Bench) -> None:
    world = World.of(bench)
    ref = start(world, WORK)
    grant = world.grant(ref, "work")
    world.now += 61_000
    assert world.engine.attempts.beat(ref, grant).word == "ok"
    pass_time(world, 9_000)
    late = Outcome(word="succeeded", text="late", usage=Usage(cost_usd=1))
    assert world.settle(ref, grant, late).word == "superseded"
    assert state(world, ref, "work") == ("ready", None)
    (retried,) = world.told(ref, "step.retried")
    assert "took longer than 60 s" in str(retried)
    assert world.engine.queries.session(ref.id).counters.cost_usd == 1


def test_outcome_of_an_attempt_that_was_silent_past_its_deadline_is_lost(bench: Bench) -> None:
    world = World.of(bench)
    ref = start(world, WORK)
    grant = world.grant(ref, "work")
    pass_time(world, 70_000)
    assert world.settle(ref, grant).word == "superseded"
    assert world.engine.queries.session(ref.id).counters.attempts_lost == 1
    world.settle(ref, world.grant(ref, "work"))
    assert world.engine.queries.session(ref.id).status == "completed"


def test_beat_after_the_deadline_has_lost_the_step(bench: Bench) -> None:
    world = World.of(bench)
    ref = start(world, WORK)
    grant = world.grant(ref, "work")
    pass_time(world, 70_000)
    assert world.engine.attempts.beat(ref, grant).word == "lost"
    assert state(world, ref, "work") == ("ready", None)


def test_step_is_not_claimed_once_the_time_of_its_session_is_over(bench: Bench) -> None:
    world = World.of(bench)
    ref = start(world, WORK, budget=Budget(wall_s=5))
    world.now += 5_000
    assert world.claim(ref, "work").why == "session failed"
    view = world.engine.queries.session(ref.id)
    assert view.reason is not None
    assert (view.status, view.reason.code) == ("failed", "budget")


def test_outcome_after_the_time_of_the_session_starts_nothing(bench: Bench) -> None:
    world = World.of(bench)
    ref = start(world, WORK, Step(id="next", action=Action.TOOL), budget=Budget(wall_s=5))
    grant = world.grant(ref, "work")
    world.now += 5_000
    assert world.settle(ref, grant, DONE).word == "settled"
    assert world.engine.queries.session(ref.id).status == "failed"
    assert "next" not in world.engine.store.names(ref, "steps")


def test_stop_after_the_guard_was_idle_too_long_begins_another_guard(bench: Bench) -> None:
    world = World.of(bench)
    stop(world, gate())
    old = guard_of(world).guard
    ref = SessionRef(old, old)
    park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "stop")))
    world.now += IDLE_S * 1000
    assert begin(world, "late").guard != old
    assert world.engine.queries.session(old).status == "completed"


def test_outcome_after_the_deadline_counts_while_redis_has_just_restarted(bench: Bench) -> None:
    world = World.of(bench)
    ref = start(world, WORK)
    grant = world.grant(ref, "work")
    bench.due(run_id="before")
    world.now += 70_000
    bench.clock.now = world.now
    bench.due(run_id="after")
    assert world.settle(ref, grant).word == "settled"
    assert world.engine.queries.session(ref.id).status == "completed"


def test_outcome_after_the_deadline_counts_before_the_first_sweep_of_a_redis_that_was_down(
    bench: Bench,
) -> None:
    world = World.of(bench)
    ref = start(world, WORK)
    grant = world.grant(ref, "work")
    pass_time(world, 58_000)
    world.now += 12_000
    assert world.settle(ref, grant).word == "settled"
    assert world.engine.queries.session(ref.id).status == "completed"
