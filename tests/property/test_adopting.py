"""A stopped flow goes on by what its file says now, or is told why it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.engine import Engine
from app.errors import (
    AnswerUnwanted,
    ControlRefused,
    FlowDisabled,
    InvalidDocument,
    PositionRefused,
)
from app.keys import SessionRef
from app.outcomes import Outcome
from app.program import SCHEMA_VERSION
from app.records import Answer
from app.settings import Settings
from app.store import Store
from app.working import Work
from leadhand.documents import Budget
from leadhand.flow_documents import FlowRun
from tests.flows import ask, llm, loop
from tests.property.driving import Bench
from tests.property.test_fsck import audit
from tests.property.world import World
from workers.parking import park

STEPS = [llm("a", label="a"), llm("b", label="b"), llm("c", label="c")]


class Flow:
    """A flow of a file that changes, carried out one step at a time."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.file = folder / "x.json"
        self.world = World.of(bench)
        settings = Settings(redis_url="redis://x", place="here", secret="s", flows=(folder,))
        store = Store(bench.client(), clock=lambda: self.world.now, read=bench.read)
        self.world.engine = Engine(store, self.world, settings)
        #: A worker that remembers the session as it was.
        self.other = Engine(store, self.world, settings.model_copy(update={"flows": ()}))

    def write(self, *steps: dict[str, Any], **more: Any) -> None:
        self.file.write_text(json.dumps({"steps": steps, **more}))

    def start(self, *steps: dict[str, Any], **more: Any) -> None:
        self.write(*steps, **more)
        id_ = self.world.engine.run_flow("x", FlowRun()).session
        self.ref = SessionRef(id_, id_)

    def do(
        self, address: str, verdict: str | None = None, engine: Engine | None = None
    ) -> list[object]:
        """Carry out a step as a worker would; what it was told."""
        engine = engine or self.other
        answer = engine.claim(self.ref, address, nonce=f"n{address}{self.world.now}", worker="w")
        assert answer.word == "granted", answer
        work = engine.work(self.ref, answer.grants[0])
        outcome = {"word": "succeeded", "text": "t", "verdict": verdict}
        engine.settle(work, Outcome.model_validate(outcome), take=[], worker="w")
        return list(work.inputs.get("lines", []))  # type: ignore[arg-type]

    def _work(self, address: str) -> Work:
        answer = self.other.claim(self.ref, address, nonce=f"f{address}", worker="w")
        assert answer.word == "granted", answer
        return self.other.work(self.ref, answer.grants[0])

    def fail(self, address: str) -> None:
        """A step fails, and the flow with it."""
        bad = Outcome(word="failed", retryable=False)
        self.other.settle(self._work(address), bad, take=[], worker="w")
        assert self.world.engine.session(self.ref.id).status == "failed"

    def ask(self, address: str) -> None:
        """A question is asked."""
        work = self._work(address)
        self.other.park(work, on="human", wait_ms=60_000, question=work.inputs["question"])

    def stop(self) -> None:
        self.world.engine.control(self.ref.id, "stop")

    def resume(self, after: str | None = None, budget: Budget | None = None) -> None:
        self.world.engine.resume_as_new(self.ref.id, after=after, budget=budget)

    @property
    def live(self) -> list[str]:
        return self.world.engine.store.members(self.ref, "live", 10)

    def refused(self) -> str:
        try:
            self.resume()
        except ControlRefused as error:
            return str(error)
        return "it was not refused"


@pytest.fixture
def flow(bench: Bench, tmp_path: Path) -> Flow:
    return Flow(bench, tmp_path)


def test_what_has_not_begun_is_what_the_file_says_now(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], llm("new b", label="b"), llm("d", label="d"), STEPS[2])
    flow.resume()
    assert flow.do("b") == ["new b"]
    assert flow.do("d") == ["d"]
    assert flow.do("c") == ["c"]
    assert flow.world.engine.session(flow.ref.id).status == "completed"


def test_what_is_taken_over_is_for_workers_that_can_read_it(flow: Flow) -> None:
    flow.start(*STEPS)
    store = flow.world.engine.store
    store._redis.hset(store.keys.part(flow.ref, "session"), "schema", "1")
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], llm("new b", label="b"))
    flow.resume()
    assert store.fields(flow.ref)["schema"] == str(SCHEMA_VERSION)


def test_without_a_word_it_goes_on_by_what_it_was_started_with(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], llm("new b", label="b"))
    flow.world.engine.control(flow.ref.id, "resume")
    assert flow.do("b") == ["b"]
    assert flow.live == ["c"]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([llm("0", label="zero"), *STEPS], "step 'a' is done, and 'zero' stands before it now"),
        (STEPS[1:], "step 'a' is done, and is no longer there"),
        ([loop(llm(), label="a")], "step 'a' is done, and is of another kind"),
        ([{"type": "wait", "seconds": 1, "label": "a"}], "is of another kind"),
        ([STEPS[1], STEPS[0]], "step 'a' is done, and 'b' stands before it now"),
    ],
)
def test_what_is_done_must_fit(flow: Flow, steps: list[dict[str, Any]], why: str) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(*steps)
    assert why in flow.refused()
    assert flow.world.engine.session(flow.ref.id).status == "stopped"


BEFORE = llm("before", label="before")


def test_a_step_before_the_one_that_stopped_is_the_next_to_run(
    bench: Bench, tmp_path: Path
) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    flow.resume()
    assert audit(flow.world.engine.fsck).items == []
    assert flow.live == ["before"]
    flow.do("before")
    assert flow.live == ["b~2"]
    flow.do("b~2")
    flow.do("c")
    assert flow.world.engine.session(flow.ref.id).status == "completed"
    done = [step.address for step in flow.world.engine.steps(flow.ref.id, limit=99).items
            if step.state == "succeeded"]  # fmt: skip
    assert set(done) == {"a", "before", "b~2", "c"}


def test_a_step_before_the_one_that_failed_is_the_next_to_run(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.fail("b")
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    flow.resume()
    assert flow.live == ["before"]
    flow.do("before")
    assert flow.do("b~2") == ["b"]
    assert flow.live == ["c"]


@pytest.mark.parametrize("failed", [True, False])
@pytest.mark.parametrize(
    ("steps", "next_one"),
    [
        ([STEPS[0]], None),
        ([STEPS[0], STEPS[2]], "c"),
        ([STEPS[0], STEPS[2], STEPS[1]], "c"),
        ([STEPS[0], loop(llm(), label="b")], "b~1[1]/llm1"),
        ([STEPS[0], {"type": "human", "question": "?", "label": "b"}], "b~2"),
    ],
)
def test_what_is_not_done_may_be_anything_or_be_gone(
    flow: Flow, failed: bool, steps: list[dict[str, Any]], next_one: str | None
) -> None:
    flow.start(*STEPS)
    flow.do("a")
    if failed:
        flow.fail("b")
    else:
        flow.stop()
    flow.write(*steps)
    flow.resume()
    status = flow.world.engine.session(flow.ref.id).status
    assert (flow.live, status) == (([next_one], "active") if next_one else ([], "completed"))
    assert flow.world.engine.steps(flow.ref.id, limit=99).items
    assert flow.world.engine.explain(flow.ref.id).status == status


@pytest.mark.parametrize("failed", [True, False])
def test_a_step_before_the_one_in_a_loop_is_the_next_in_that_iteration(
    flow: Flow, failed: bool
) -> None:
    body = [llm("a", label="a"), llm("b", label="b"), ask(label="so")]
    flow.start(loop(*body, label="round"), STEPS[2])
    for at in ("a", "b"):
        flow.do(f"round~1[1]/{at}")
    flow.do("round~1[1]/so", "retry")
    flow.do("round~1[2]/a")
    if failed:
        flow.fail("round~1[2]/b")
    else:
        flow.stop()
    flow.write(loop(body[0], BEFORE, *body[1:], label="round"), STEPS[2])
    flow.resume()
    assert flow.live == ["round~2[2]/before"]
    flow.do("round~2[2]/before")
    flow.do("round~2[2]/b")
    flow.do("round~2[2]/so", "accept")
    assert flow.live == ["c"]


def test_a_loop_that_was_entered_stays_where_it_was(flow: Flow) -> None:
    turn = loop(llm("a", label="a"), ask(label="so"), label="round")
    flow.start(STEPS[1], turn)
    flow.do("b")
    flow.do("round~1[1]/a")
    flow.stop()
    flow.write(STEPS[1], BEFORE, turn)
    assert "loop 'round' was entered, and 'before' stands before it now" in flow.refused()
    flow.write(STEPS[1], llm("a", label="round"))
    assert "loop 'round' was entered, and is of another kind now" in flow.refused()


def test_a_loop_in_which_nothing_is_done_may_be_moved(flow: Flow) -> None:
    turn = loop(llm("a", label="a"), ask(label="so"), label="round")
    flow.start(STEPS[1], turn)
    flow.do("b")
    flow.stop()
    flow.write(STEPS[1], BEFORE, turn)
    flow.resume()
    flow.do("before")
    assert flow.live == ["round~2[1]/a"]


def test_what_comes_after_a_named_point_need_not_fit(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.do("b")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    assert "step 'b' is done, and 'before' stands before it now" in flow.refused()
    flow.resume(after="a")
    flow.do("before")
    assert flow.live == ["b~2"]


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
        flow.world.engine.give(flow.ref.id, "late", address="b")


def test_a_resume_whose_answer_was_lost_is_done_once(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    store = flow.world.engine.store
    answers: list[Answer] = []

    def twice(verb: Any, *given: Any, **more: Any) -> Answer:
        if verb == "control":
            answers.append(run(verb, *given, **more))
        return run(verb, *given, **more)

    run, store.run = store.run, twice  # type: ignore[method-assign]
    flow.resume()
    store.run = run  # type: ignore[method-assign]
    assert {answer.word for answer in answers} == {"done"}
    assert flow.live == ["before"]
    events = [event.type for event in flow.world.engine.events(flow.ref.id, limit=999)]
    assert events.count("session.adopted") == 1


@pytest.mark.parametrize("verb", ["abort", "resume"])
def test_who_loses_a_race_takes_nothing_over(bench: Bench, tmp_path: Path, verb: Any) -> None:
    """The session is steered by somebody else between the look at it and the call."""
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

    def late(*given: Any, **more: Any) -> Answer:
        store.run = run  # type: ignore[method-assign]
        flow.other.control(flow.ref.id, verb)
        return run(*given, **more)

    run, store.run = store.run, late  # type: ignore[method-assign]
    assert "only a stopped or failed session can be resumed" in flow.refused()
    assert store.fields(flow.ref)["program"] == program
    assert store.program(program) is not None
    assert flow.live == ([] if verb == "abort" else ["b"])
    assert audit(flow.world.engine.fsck).items == []


def test_a_session_that_moved_on_meanwhile_is_looked_at_again(bench: Bench, tmp_path: Path) -> None:
    """It was resumed, did a step, and was stopped again between the look at it and the call."""
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    store = flow.world.engine.store

    def late(*given: Any, **more: Any) -> Answer:
        store.run = run  # type: ignore[method-assign]
        flow.world.now += 1
        flow.other.control(flow.ref.id, "resume")
        flow.do("b")
        flow.other.control(flow.ref.id, "stop")
        return run(*given, **more)

    run, store.run = store.run, late  # type: ignore[method-assign]
    assert "step 'b' is done, and 'before' stands before it now" in flow.refused()


def test_a_resume_that_would_be_refused_takes_nothing_over(bench: Bench, tmp_path: Path) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS, budget={"steps": 1})
    flow.do("a")
    assert flow.world.engine.session(flow.ref.id).status == "failed"
    flow.write(*STEPS, llm("d", label="d"), budget={"steps": 1})
    before = flow.world.engine.store.fields(flow.ref)
    with pytest.raises(ControlRefused, match="budget"):
        flow.resume()
    raised = Budget(steps=9)
    with pytest.raises(PositionRefused):
        flow.resume(after="nowhere", budget=raised)
    assert flow.world.engine.store.fields(flow.ref) == before
    flow.resume(after="a", budget=raised)
    assert flow.do("b~2") == ["b"]


def test_what_was_taken_over_is_the_file_whatever_its_run_was_given(flow: Flow) -> None:
    flow.write(llm("${inputs.what}", label="a"), inputs={"what": "x"})
    id_ = flow.world.engine.run_flow("x", FlowRun(inputs={"what": "mine"})).session
    flow.ref = SessionRef(id_, id_)
    flow.stop()
    flow.write(llm("new ${inputs.what}", label="a"), inputs={"what": "x"})
    flow.resume()
    notes = flow.world.engine.session(id_).notes
    assert not any("has changed" in note for note in notes), notes
    assert flow.do("a") == ["new mine"]


def test_a_loop_under_way_must_still_be_there(flow: Flow) -> None:
    turn = loop(llm("a", label="a"), ask(label="so"), label="round")
    flow.start(turn)
    flow.do("round~1[1]/a")
    flow.do("round~1[1]/so", "retry")
    flow.do("round~1[2]/a")
    flow.stop()
    flow.write(loop(llm("z", label="z"), ask(label="so"), label="round"))
    assert "step 'round/a' is done, and is no longer there" in flow.refused()
    flow.write(
        loop(llm("new a", label="a"), llm("more", label="more"), ask(label="so"), label="round")
    )
    flow.resume()
    assert flow.do("round~2[2]/more") == ["more"]
    flow.do("round~2[2]/so", "accept")
    assert flow.world.engine.session(flow.ref.id).status == "completed"


def subflow(*names: str, label: str = "s") -> dict[str, Any]:
    return {"type": "subflow", "label": label, "flowNames": names}


@pytest.mark.parametrize("first", [[], [STEPS[0]]])
@pytest.mark.parametrize("looped", [False, True])
@pytest.mark.parametrize(
    ("was", "done", "now"),
    [
        (("f1", "f2"), (), ("f1", "f2", "f3")),
        (("f1", "f2"), ("f1",), ("f1", "f2", "f3")),
        (("f1",), (), ("f1", "f2")),
        (("f1", "f2", "f3"), ("f1",), ("f1", "f2")),
    ],
)
def test_a_subflow_that_is_put_beside_others_under_way_is_begun(
    flow: Flow,
    first: list[dict[str, Any]],
    looped: bool,
    was: tuple[str, ...],
    done: tuple[str, ...],
    now: tuple[str, ...],
) -> None:
    for name in ("f1", "f2", "f3"):
        (flow.file.parent / f"{name}.json").write_text(json.dumps({"steps": [llm()]}))
    place = "round~1[1]/" if looped else ""

    def steps(*names: str) -> list[dict[str, Any]]:
        body = [*first, subflow(*names)]
        return [loop(*body, ask(label="so"), label="round")] if looped else body

    flow.start(*steps(*was))
    for name in [step["label"] for step in first] + [f"s-{name}" for name in done]:
        flow.do(f"{place}{name}")
    flow.stop()
    flow.write(*steps(*now))
    flow.resume()
    assert audit(flow.world.engine.fsck).items == []
    left = [name for name in now if name not in done]
    bare = [re.sub(r"~\d+", "", address) for address in flow.live]
    assert bare == [f"{place.replace('~1', '')}s-{name}" for name in left]
    while flow.live:
        flow.do(flow.live[0], "accept" if flow.live[0].endswith("/so") else None)
    assert flow.world.engine.session(flow.ref.id).status == "completed"
    ended = [re.sub(r"~\d+", "", step.address)
             for step in flow.world.engine.steps(flow.ref.id, limit=99).items
             if step.state == "succeeded" and "s-" in step.address]  # fmt: skip
    assert len(ended) == len(set(ended)) == len(now)


def test_a_subflow_under_way_that_goes_on_as_it_began_is_named(flow: Flow) -> None:
    def notes() -> list[str]:
        flow.world.later(1)  # so that parents and children hear of each other
        return flow.world.engine.session(flow.ref.id).notes

    def go_on() -> list[str]:
        flow.stop()
        flow.world.later(1)
        flow.resume()
        return notes()

    children = {name: flow.file.parent / f"{name}.json" for name in ("same", "other")}
    for file in children.values():
        file.write_text(json.dumps({"steps": [llm("as it was")]}))
    flow.start(subflow("same", "other"))
    for name in children:
        park(flow.other, flow._work(f"s-{name}"))
    assert go_on() == []
    children["other"].write_text(json.dumps({"steps": [llm("as it is")]}))
    (note,) = go_on()
    assert note.startswith("s-other waits for ")
    assert "whose flow goes on as it began" in note
    assert go_on() == [note]  # the file is the same now, and the child still is not of it
    child = note.split()[3].rstrip(",")
    flow.world.engine.control(child, "abort")
    assert notes() == []


def test_a_step_that_was_gone_and_is_back_runs_again(flow: Flow) -> None:
    flow.start(*STEPS[:2])
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], STEPS[2])
    flow.resume()
    assert flow.live == ["c"]
    flow.stop()
    flow.write(STEPS[0], STEPS[2], STEPS[1])
    flow.resume()
    while flow.live:
        flow.do(flow.live[0])
    assert flow.world.engine.session(flow.ref.id).status == "completed"
    assert "b~2" in [step.address for step in flow.world.engine.steps(flow.ref.id, limit=9).items]


def test_only_what_rests_and_has_a_file_can_go_on_by_it(flow: Flow) -> None:
    flow.start(*STEPS)
    assert "only a stopped or failed one" in flow.refused()
    flow.stop()
    flow.file.write_text("{")
    with pytest.raises(FlowDisabled):
        flow.resume()
    flow.write(llm("${inputs.what}", label="a"), inputs={"what": None})
    with pytest.raises(InvalidDocument, match="what") as refused:
        flow.resume()
    assert "give it a default in the file" in refused.value.hint


def test_the_budget_is_what_the_file_says_now(flow: Flow) -> None:
    flow.write(*STEPS, budget={"steps": 9, "tokens": 5, "cost_usd": 2.0, "iterations": 7})
    id_ = flow.world.engine.run_flow("x", FlowRun(budget=Budget(tokens=50))).session
    flow.ref = SessionRef(id_, id_)

    def resumed(budget: Budget | None = None) -> dict[str, float]:
        flow.stop()
        flow.resume(budget=budget)
        usual = ("stops", "stage_stops", "wall_s")
        lines = flow.world.engine.session(id_).budget
        return {name: line.limit for name, line in lines.items() if name not in usual}

    as_begun = {"tokens": 50, "cost_usd": 2.0, "iterations": 7}
    assert resumed(Budget(steps=20)) == {**as_begun, "steps": 20}
    flow.write(*STEPS, budget={"steps": 9, "tokens": 7})
    assert resumed() == {"steps": 20, "tokens": 50, "cost_usd": 1000, "iterations": 10_000}
    flow.write(*STEPS, budget={"steps": 8, "cost_usd": 4.0})
    assert resumed(Budget(cost_usd=5.0)) == {
        "steps": 8, "tokens": 50, "cost_usd": 5.0, "iterations": 10_000,
    }  # fmt: skip


def test_a_folder_that_is_not_there_is_named_as_the_run_names_it(flow: Flow) -> None:
    flow.write(*STEPS)
    with pytest.raises(InvalidDocument, match=r"^working_folder is '/gone'"):
        flow.world.engine.run_flow("x", FlowRun(working_folder="/gone"))


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
        flow.world.engine.control(ref.id, "abort")
        flow.world.engine.delete(ref.id)
        assert flow.world.engine.store.program(program) is None
    assert audit(flow.world.engine.fsck).items == []


def test_the_old_program_goes_with_the_last_session_that_has_it(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.stop()
    old = flow.world.engine.store.fields(flow.ref)["program"]
    flow.write(*STEPS, llm("d", label="d"))
    flow.resume()
    assert flow.world.engine.store.program(old) is None
    notes = flow.world.engine.session(flow.ref.id).notes
    assert not any("has changed" in note for note in notes)
    flow.stop()
    flow.world.engine.control(flow.ref.id, "abort")
    flow.world.engine.delete(flow.ref.id)
