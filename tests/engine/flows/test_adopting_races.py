"""Races of a resume that takes over a changed file, and the programs that it replaces."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.core.records import Reply
from app.errors import PositionRefused
from leadhand.errors import AnswerUnwanted, ControlRefused
from leadhand.models.documents import Budget
from tests.engine.driving import Bench
from tests.engine.flows.changed_flow import BEFORE, STEPS, Flow
from tests.engine.test_fsck import audit
from tests.flows import llm


def test_a_question_of_the_old_file_is_asked_no_more(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    question = {"type": "human", "question": "well?", "label": "b"}
    flow.start(STEPS[0], question)
    flow.do("a")
    flow.ask("b")
    flow.stop()
    flow.write(STEPS[0], BEFORE)
    flow.resume()
    assert flow.live == ["before"]
    with pytest.raises(AnswerUnwanted):
        flow.world.engine.answers.give(flow.ref.id, "late", address="b")


def test_a_resume_whose_answer_was_lost_is_done_once(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    store = flow.world.engine.store
    answers: list[Reply] = []

    def twice(verb: Any, *given: Any, **more: Any) -> Reply:
        if verb == "control":
            answers.append(run(verb, *given, **more))
        return run(verb, *given, **more)

    run, store.run = store.run, twice  # type: ignore[method-assign]
    flow.resume()
    store.run = run  # type: ignore[method-assign]
    assert {answer.word for answer in answers} == {"done"}
    assert flow.live == ["before"]
    events = [event.type for event in flow.world.engine.queries.events(flow.ref.id, limit=999)]
    assert events.count("session.adopted") == 1


@pytest.mark.parametrize("verb", ["abort", "resume"])
def test_who_loses_a_race_takes_nothing_over(bench: Bench, tmp_path: Path, verb: Any) -> None:
    """Another control changes the session between the read and the call."""
    lost_a_race(bench, tmp_path, verb)


def test_who_is_aborted_meanwhile_takes_nothing_over(bench: Bench, tmp_path: Path) -> None:
    lost_a_race(bench, tmp_path, "abort")


def lost_a_race(bench: Bench, folder: Path, verb: Any) -> None:
    flow = Flow(bench, folder)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    store = flow.world.engine.store
    program = store.fields(flow.ref)["program"]

    def late(*given: Any, **more: Any) -> Reply:
        store.run = run  # type: ignore[method-assign]
        flow.other.control.apply(flow.ref.id, verb)
        return run(*given, **more)

    run, store.run = store.run, late  # type: ignore[method-assign]
    assert "only a stopped or failed session can be resumed" in flow.refused()
    assert store.fields(flow.ref)["program"] == program
    assert store.program(program) is not None
    assert flow.live == ([] if verb == "abort" else ["b"])
    assert audit(flow.world.engine.audit.run).items == []


def test_a_session_that_moved_on_meanwhile_is_looked_at_again(bench: Bench, tmp_path: Path) -> None:
    """It was resumed, did a step, and was stopped again between the look at it and the call."""
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    store = flow.world.engine.store

    def late(*given: Any, **more: Any) -> Reply:
        store.run = run  # type: ignore[method-assign]
        flow.world.now += 1
        flow.other.control.apply(flow.ref.id, "resume")
        flow.do("b")
        flow.other.control.apply(flow.ref.id, "stop")
        return run(*given, **more)

    run, store.run = store.run, late  # type: ignore[method-assign]
    assert "step 'b' is done, and now needs 'before'" in flow.refused()


def test_a_resume_that_would_be_refused_takes_nothing_over(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS, budget={"steps": 1})
    flow.do("a")
    assert flow.world.engine.queries.session(flow.ref.id).status == "failed"
    flow.write(*STEPS, llm("d", label="d"), budget={"steps": 1})
    before = flow.world.engine.store.fields(flow.ref)
    with pytest.raises(ControlRefused, match="budget"):
        flow.resume()
    assert flow.world.engine.store.fields(flow.ref) == before
    raised = Budget(steps=9)
    with pytest.raises(PositionRefused):
        flow.resume(after="nowhere", budget=raised)
    assert flow.world.engine.store.fields(flow.ref) == before
    flow.resume(after="a", budget=raised)
    assert flow.do("b~2") == ["b"]


def test_the_old_program_stays_for_who_still_has_it(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.stop()
    first = flow.ref
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    old = flow.world.engine.store.fields(flow.ref)["program"]
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    flow.resume()
    new = flow.world.engine.store.fields(flow.ref)["program"]
    assert flow.world.engine.store.program(old) is not None
    for ref, program in ((first, old), (flow.ref, new)):
        flow.world.engine.control.apply(ref.id, "abort")
        flow.world.engine.deletion.delete(ref.id)
        assert flow.world.engine.store.program(program) is None
    assert audit(flow.world.engine.audit.run).items == []


def test_the_old_program_goes_with_the_last_session_that_has_it(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.stop()
    old = flow.world.engine.store.fields(flow.ref)["program"]
    flow.write(*STEPS, llm("d", label="d"))
    flow.resume()
    assert flow.world.engine.store.program(old) is None
    notes = flow.world.engine.queries.session(flow.ref.id).notes
    assert not any("has changed" in note for note in notes)
    flow.stop()
    flow.world.engine.control.apply(flow.ref.id, "abort")
    flow.world.engine.deletion.delete(flow.ref.id)
