"""The result of a flow whose loop ran out: its best iteration and the failed checks."""

from __future__ import annotations

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action
from leadhand.cli.render.result_text import flow_summary
from leadhand.flows.documents import FlowDocument
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.result import ResultView
from leadhand.models.views.result import ResultView as Told
from tests.engine.world import World
from tests.flows import ask, flow, llm, loop


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def run(world: World, document: FlowDocument, answers: dict[str, Outcome]) -> ResultView:
    id_ = world.engine.submit.document(document).session
    ref = SessionRef(id_, id_)
    while live := world.engine.store.members(ref, "live", 10):
        grant = world.grant(ref, live[0])
        work = world.engine.attempts.work(ref, grant)
        said = Outcome(word="succeeded", text=f"said at {grant.address}")
        usual = said if work.step.action is Action.AGENT else NO
        world.settle(ref, grant, answers.get(grant.address, usual))
    return world.engine.queries.result(id_)


NO = Outcome.model_validate({"word": "succeeded", "verdict": "retry", "text": "2 of 6 pass"})
YES = Outcome.model_validate({"word": "succeeded", "verdict": "accept", "text": "all pass"})
FAILED = Outcome(word="failed", text="gone", retryable=False)


def test_a_loop_at_its_cap_says_what_its_breaks_answered_last(world: World) -> None:
    steps = (llm(), ask(label="all green"), ask("continue"), llm())
    found = run(world, flow(loop(*steps, maxIterations=2)), {})
    assert (found.verdict, found.status) == ("max_iterations", "failed")
    assert found.best_iteration is not None
    best = found.best_iteration
    assert (best.run, best.iteration, best.accepted, best.checks) == (1, 2, 0, 1)
    assert best.work == "said at loop1~1[2]/llm4"
    assert [(one.name, one.verdict, one.feedback) for one in found.missing] == [
        ("all green", "retry", "2 of 6 pass")
    ]
    lines = list(flow_summary(Told.model_validate_json(found.model_dump_json())))
    assert "nearest: iteration 2, 0 of 1 accepted" in lines
    assert "  missing all green: 2 of 6 pass" in lines


def test_an_iteration_that_failed_before_it_was_judged_is_not_the_nearest(world: World) -> None:
    found = run(world, flow(loop(llm(), ask(), maxIterations=3)), {"loop1~1[2]/llm1": FAILED})
    assert found.status == "failed"
    assert found.best_iteration is not None
    assert found.best_iteration.iteration == 1
    assert [one.name for one in found.missing] == ["break steps[0].steps[1]"]


def test_a_decision_that_failed_says_why_instead_of_its_answer(world: World) -> None:
    why = Reason(code=ReasonCode.INVALID_ANSWER, text="agent 'a' gave no decision")
    undecided = Outcome(word="failed", reason=why, retryable=False)
    found = run(world, flow(loop(llm(), ask(label="good?"))), {"loop1~1[1]/good": undecided})
    assert [(one.name, one.verdict, one.feedback) for one in found.missing] == [
        ("good?", None, "agent 'a' gave no decision")
    ]
    assert "  missing good?: agent 'a' gave no decision" in flow_summary(found)


def test_a_loop_that_a_break_ended_lacks_nothing(world: World) -> None:
    found = run(world, flow(loop(llm(), ask(), maxIterations=3)), {"loop1~1[2]/break2": YES})
    assert (found.status, found.best_iteration, found.missing) == ("completed", None, [])


def test_a_loop_without_a_break_has_nothing_to_say_of_it(world: World) -> None:
    found = run(world, flow(loop(llm(), maxIterations=2)), {})
    assert (found.verdict, found.best_iteration) == ("max_iterations", None)


def test_a_flow_ends_with_the_text_of_its_last_step(world: World) -> None:
    steps = (loop(llm(), ask(), maxIterations=2), llm())
    found = run(world, flow(*steps), {"loop1~1[1]/break2": YES})
    assert (found.status, found.result_text) == ("completed", "said at llm2")
    assert "  said at llm2" in flow_summary(found)
    without_loop = run(world, flow(llm(), llm()), {})
    assert without_loop.result_text == "said at llm2"


def test_a_flow_that_ends_with_a_loop_has_its_newest_text(world: World) -> None:
    found = run(world, flow(llm(), loop(llm(), ask())), {"loop2~1[1]/break2": YES})
    assert found.result_text == "said at loop2~1[1]/llm1"


def test_neither_a_decision_nor_a_failed_step_is_the_text_of_a_flow(world: World) -> None:
    decided = flow(llm(), ask("if", then=[llm()]))
    found = run(world, decided, {"if2": NO})
    assert (found.status, found.result_text) == ("completed", "said at llm1")
    failed = run(world, flow(llm(), llm()), {"llm2": FAILED})
    assert (failed.status, failed.result_text) == ("failed", "said at llm1")


def test_a_warning_that_was_recorded_twice_is_shown_once(world: World) -> None:
    found = run(world, flow(llm()), {})
    store, ref = world.engine.store, SessionRef(found.session_id, found.session_id)
    store._redis.rpush(store.keys.part(ref, "warnings"), "no room", "no room")
    assert world.engine.queries.result(ref.id).warnings == ["no room"]
    assert world.engine.queries.session(ref.id).warnings == ["no room"]
