"""A stopped flow continues with the changed file, or the resume names why it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.program import SCHEMA_VERSION
from app.errors import InvalidDocument
from leadhand.errors import FlowDisabled
from leadhand.flows.documents import FlowRun
from leadhand.models.documents import Budget
from tests.engine.driving import Bench
from tests.engine.flows.changed_flow import BEFORE, STEPS, Flow, subflow
from tests.engine.test_fsck import audit
from tests.flows import ask, llm, loop
from workers.attempt.settle import park


def test_what_has_not_begun_is_what_the_file_says_now(flow: Flow) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], llm("new b", label="b"), llm("d", label="d"), STEPS[2])
    flow.resume()
    assert flow.do("b") == ["new b"]
    assert flow.do("d") == ["d"]
    assert flow.do("c") == ["c"]
    assert flow.world.engine.queries.session(flow.ref.id).status == "completed"


def test_what_is_taken_over_is_for_workers_that_can_read_it(flow: Flow) -> None:
    flow.start(*STEPS)
    store = flow.world.engine.store
    store._redis.hset(store.keys.part(flow.ref, "session"), "schema", "0")
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
    flow.world.engine.control.apply(flow.ref.id, "resume")
    assert flow.do("b") == ["b"]
    assert flow.live == ["c"]


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ([llm("0", label="zero"), *STEPS], "step 'a' is done, and now needs 'zero'"),
        (STEPS[1:], "step 'a' is done, and is no longer there"),
        ([loop(llm(), label="a")], "step 'a' is done, and has another kind"),
        ([{"type": "wait", "seconds": 1, "label": "a"}], "has another kind"),
        ([STEPS[1], STEPS[0]], "step 'a' is done, and now needs 'b'"),
    ],
)
def test_what_is_done_must_fit(flow: Flow, steps: list[dict[str, Any]], why: str) -> None:
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(*steps)
    assert why in flow.refused()
    assert flow.world.engine.queries.session(flow.ref.id).status == "stopped"


def test_a_step_before_the_one_that_stopped_is_the_next_to_run(
    bench: Bench, tmp_path: Path
) -> None:
    flow = Flow(bench, tmp_path)
    flow.start(*STEPS)
    flow.do("a")
    flow.stop()
    flow.write(STEPS[0], BEFORE, *STEPS[1:])
    flow.resume()
    assert audit(flow.world.engine.audit.run).items == []
    assert flow.live == ["before"]
    flow.do("before")
    assert flow.live == ["b~2"]
    flow.do("b~2")
    flow.do("c")
    assert flow.world.engine.queries.session(flow.ref.id).status == "completed"
    done = [step.address for step in flow.world.engine.queries.steps(flow.ref.id, limit=99).items
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
    status = flow.world.engine.queries.session(flow.ref.id).status
    assert (flow.live, status) == (([next_one], "active") if next_one else ([], "completed"))
    assert flow.world.engine.queries.steps(flow.ref.id, limit=99).items
    assert flow.world.engine.explainer.explain(flow.ref.id).status == status


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
    assert "loop 'round' was entered, and now needs 'before'" in flow.refused()
    flow.write(STEPS[1], llm("a", label="round"))
    assert "loop 'round' was entered, and has another kind now" in flow.refused()


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
    assert "step 'b' is done, and now needs 'before'" in flow.refused()
    flow.resume(after="a")
    flow.do("before")
    assert flow.live == ["b~2"]


def test_what_was_taken_over_is_the_file_whatever_its_run_was_given(flow: Flow) -> None:
    flow.write(llm("${inputs.what}", label="a"), inputs={"what": "x"})
    id_ = flow.world.engine.submit.flow("x", FlowRun(inputs={"what": "mine"})).session
    flow.ref = SessionRef(id_, id_)
    flow.stop()
    flow.write(llm("new ${inputs.what}", label="a"), inputs={"what": "x"})
    flow.resume()
    notes = flow.world.engine.queries.session(id_).notes
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
    assert flow.world.engine.queries.session(flow.ref.id).status == "completed"


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
    assert audit(flow.world.engine.audit.run).items == []
    left = [name for name in now if name not in done]
    bare = [re.sub(r"~\d+", "", address) for address in flow.live]
    assert bare == [f"{place.replace('~1', '')}s-{name}" for name in left]
    while flow.live:
        flow.do(flow.live[0], "accept" if flow.live[0].endswith("/so") else None)
    assert flow.world.engine.queries.session(flow.ref.id).status == "completed"
    ended = [re.sub(r"~\d+", "", step.address)
             for step in flow.world.engine.queries.steps(flow.ref.id, limit=99).items
             if step.state == "succeeded" and "s-" in step.address]  # fmt: skip
    assert len(ended) == len(set(ended)) == len(now)


def test_a_subflow_under_way_that_goes_on_as_it_began_is_named(flow: Flow) -> None:
    def notes() -> list[str]:
        flow.world.later(1)  # so that parents and children notify each other
        return flow.world.engine.queries.session(flow.ref.id).notes

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
    assert "which runs the old flow" in note
    assert go_on() == [note]  # the file is the same now, and the child still is not of it
    child = note.split()[3].rstrip(",")
    flow.world.engine.control.apply(child, "abort")
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
    assert flow.world.engine.queries.session(flow.ref.id).status == "completed"
    assert "b~2" in [
        step.address for step in flow.world.engine.queries.steps(flow.ref.id, limit=9).items
    ]


def test_only_what_rests_and_has_a_file_can_go_on_by_it(flow: Flow) -> None:
    flow.start(*STEPS)
    assert "only a stopped or failed session" in flow.refused()
    flow.stop()
    flow.file.write_text("{")
    with pytest.raises(FlowDisabled):
        flow.resume()
    flow.write(llm("${inputs.what}", label="a"), inputs={"what": None})
    with pytest.raises(InvalidDocument, match="what") as refused:
        flow.resume()
    assert "add a default to the file" in refused.value.hint


def test_the_budget_is_what_the_file_says_now(flow: Flow) -> None:
    flow.write(*STEPS, budget={"steps": 9, "tokens": 5, "cost_usd": 2.0, "iterations": 7})
    id_ = flow.world.engine.submit.flow("x", FlowRun(budget=Budget(tokens=50))).session
    flow.ref = SessionRef(id_, id_)

    def resumed(budget: Budget | None = None) -> dict[str, float]:
        flow.stop()
        flow.resume(budget=budget)
        usual = ("stops", "stage_stops", "wall_s")
        lines = flow.world.engine.queries.session(id_).budget
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
        flow.world.engine.submit.flow("x", FlowRun(working_folder="/gone"))
