"""Skipped steps: what depends on them goes on without their results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Origin, Program, Step
from app.core.states import Seen
from app.errors import PositionRefused
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from app.sessions.submit import About
from leadhand.errors import ControlRefused, SessionChanged
from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld, failed
from tests.engine.world import World

Make = Callable[..., GraphWorld]


def graph(bench: Bench, *steps: Mapping[str, object], **more: object) -> GraphWorld:
    return GraphWorld(World.of(bench), steps, **more)


def broken(**_: Any) -> None:
    raise ValueError("it is broken")


def chain(bench: Bench) -> GraphWorld:
    """Three steps in a row, the last of which does without the second."""
    return graph(
        bench,
        {"name": "a"},
        {"name": "b", "depends_on": ["a"]},
        {"name": "c", "depends_on": ["b"], "arguments": {"b": '${b ?? "none"}'}},
    )


def test_failed_step_that_is_skipped_lets_the_session_complete(bench: Bench) -> None:
    world = chain(bench)
    world.run(b=broken)
    assert world.status == "failed"
    world.calls.clear()
    world.engine.skips.skip(world.id, "b", reason="the source is down")
    world.run()
    assert world.called == ["c"]
    assert world.status == "completed"
    assert world.result.results["c"] == {"b": "none"}
    steps = {view.address: view for view in world.engine.queries.steps(world.id, limit=99).items}
    assert steps["b~2"].state == "skipped"
    assert steps["b~2"].reason is not None
    assert steps["b~2"].reason.text == "skipped by a user: the source is down"


def test_item_is_named_as_its_document_names_the_step(bench: Bench) -> None:
    each = {"name": "b b", "for_each": [1, 2, 3], "arguments": {"n": "${item}"}, "critical": False}
    world = graph(bench, each, {"name": "fix #2", "depends_on": ["b b"]})

    def odd(n: int) -> None:
        if n == 1:
            raise ValueError("it is broken")

    world.carry_out(world.grant("b-b~1#1"), {"b b": odd})
    world.engine.skips.skip(world.id, "b b#3")
    for named in ("b b#1", "b-b~1#1"):
        with pytest.raises(ControlRefused, match="b-b~1#1 has ended; stop the session first"):
            world.engine.skips.skip(world.id, named)
    with pytest.raises(PositionRefused, match="its items are b b#1 to b b#3"):
        world.engine.skips.skip(world.id, "b b#4")
    world.engine.skips.skip(world.id, "fix #2")
    world.carry_out(world.grant("b-b~1#2"), {"b b": odd})
    assert world.status == "completed"


def test_ready_step_is_skipped_while_its_session_runs(bench: Bench) -> None:
    world = chain(bench)
    world.engine.skips.skip(world.id, "a")
    world.run()
    assert world.called == ["b", "c"]
    assert world.status == "completed"


def test_ready_step_that_is_skipped_says_why(bench: Bench) -> None:
    world = chain(bench)
    world.engine.skips.skip(world.id, "a", reason="not needed")
    (event,) = world.world.told(world.ref, "step.settled")
    assert event[0] == "a"
    assert isinstance(event[1], dict)
    assert event[1]["word"] == "skipped"
    assert event[1]["reason"] == {
        "code": "user_skip", "text": "skipped by a user: not needed",
    }  # fmt: skip


def test_pending_step_is_skipped_when_its_turn_comes(bench: Bench) -> None:
    world = chain(bench)
    world.engine.skips.skip(world.id, "b")
    assert world.status == "active"
    world.run()
    assert world.called == ["a", "c"]
    assert world.status == "completed"


def test_skip_holds_for_one_run(bench: Bench) -> None:
    world = chain(bench)
    world.engine.skips.skip(world.id, "b")
    world.run(c=broken)
    world.calls.clear()
    world.engine.step_verbs.retry(world.id, "b")
    world.run()
    assert world.called == ["b", "c"]


def test_step_of_a_stopped_session_is_skipped_and_resume_goes_on(bench: Bench) -> None:
    world = chain(bench)
    world.engine.control.apply(world.id, "stop")
    world.world.hints.clear()
    world.engine.skips.skip(world.id, "a")
    assert world.status == "stopped"
    assert world.ready() == []
    world.engine.control.apply(world.id, "resume")
    world.run()
    assert world.called == ["b", "c"]


def test_running_step_is_refused_with_the_way_out(bench: Bench) -> None:
    world = chain(bench)
    world.grant("a")
    with pytest.raises(ControlRefused, match="stop it first: leadhand stop"):
        world.engine.skips.skip(world.id, "a")


def test_step_that_is_done_or_unknown_is_refused(bench: Bench) -> None:
    world = chain(bench)
    world.carry_out(world.grant("a"), {})
    with pytest.raises(PositionRefused, match="a is done"):
        world.engine.skips.skip(world.id, "a")
    with pytest.raises(PositionRefused, match="no such node"):
        world.engine.skips.skip(world.id, "z")
    world.engine.control.apply(world.id, "abort")
    with pytest.raises(ControlRefused, match="leadhand fork"):
        world.engine.skips.skip(world.id, "b")


def test_failed_step_of_an_active_session_needs_a_stop(bench: Bench) -> None:
    world = graph(bench, {"name": "a", "critical": False}, {"name": "b", "depends_on": ["a"]})
    world.carry_out(world.grant("a"), {"a": broken})
    with pytest.raises(ControlRefused, match="leadhand stop"):
        world.engine.skips.skip(world.id, "a")


def test_repeated_skip_changes_nothing(bench: Bench) -> None:
    world = chain(bench)
    world.engine.skips.skip(world.id, "a")
    world.engine.skips.skip(world.id, "a")
    world.run()
    assert world.status == "completed"


def test_skip_of_a_session_that_has_changed_is_refused(bench: Bench) -> None:
    world = chain(bench)
    with pytest.raises(SessionChanged):
        world.engine.skips.skip(world.id, "b", seen=Seen("active", 1))


def test_step_that_starts_meanwhile_is_not_skipped(bench: Bench) -> None:
    world = chain(bench)
    skips, settle = world.engine.skips, world.engine.skips._settle

    def late(*given: Any, **more: Any) -> bool:
        if not world.calls:
            world.calls.append(("claim", {}))
            world.grant("a")
        return settle(*given, **more)

    skips._settle = late  # type: ignore[method-assign]
    with pytest.raises(ControlRefused, match="a is running"):
        skips.skip(world.id, "a")


def test_item_of_a_for_each_is_skipped(bench: Bench) -> None:
    world = graph(
        bench,
        {"name": "a"},
        {"name": "b", "for_each": "${a}", "arguments": {"x": "${item}"}},
        {"name": "c", "arguments": {"all": "${b}"}},
    )
    world.carry_out(world.grant("a"), {"a": lambda: [1, 2, 3]})
    world.engine.skips.skip(world.id, "b~1#2")
    world.run(b=lambda x: x)
    assert world.result.results["c"] == {"all": [1, None, 3]}


def test_skipped_list_has_no_items_in_the_next_run(bench: Bench) -> None:
    world = graph(
        bench,
        {"name": "a"},
        {"name": "b", "for_each": "${a}", "arguments": {"x": "${item}"}},
        {"name": "c", "depends_on": ["b"]},
    )
    world.run(a=lambda: [1, 2], c=broken)
    world.engine.step_verbs.retry(world.id, "a")
    world.world.hints.clear()
    world.calls.clear()
    world.engine.skips.skip(world.id, "a")
    world.run()
    assert world.called == ["c"]


def test_skipped_step_that_is_a_list_itself_has_no_items_in_the_next_run(bench: Bench) -> None:
    world = World.of(bench)
    body = (
        Step(id="a", action=Action.TOOL),
        Step(id="b", action=Action.TOOL, for_each="${a.value}", needs=("a",)),
        Step(id="c", action=Action.TOOL, needs=("b",)),
    )
    id_ = world.engine.submit.program(Program(body=body), About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    world.settle(ref, world.grant(ref, "a"), Outcome(word="succeeded", value=[1, 2]))
    for address in ("b~1#1", "b~1#2"):
        world.settle(ref, world.grant(ref, address))
    world.settle(ref, world.grant(ref, "c"), failed("it is broken", retryable=False))
    world.engine.step_verbs.retry(id_, "a")
    world.hints.clear()
    world.engine.skips.skip(id_, "a")
    assert [address for _, address in world.hints] == ["c~2"]


def loop_world(bench: Bench) -> tuple[World, SessionRef]:
    world = World.of(bench)
    return world, world.session()


def test_check_that_refuses_each_iteration_is_skipped(bench: Bench) -> None:
    world, ref = loop_world(bench)
    for iteration in (1, 2, 3):
        world.turn(ref, iteration, "retry")
    assert world.engine.queries.session(ref.id).status == "failed"
    world.hints.clear()
    world.engine.skips.skip(ref.id, "check")
    assert [address for _, address in world.hints] == ["loop~2[3]/judge"]
    steps = {view.address: view for view in world.engine.queries.steps(ref.id, limit=99).items}
    assert steps["loop~2[3]/check"].state == "skipped"
    with pytest.raises(PositionRefused, match="the judge ends the iteration"):
        world.engine.skips.skip(ref.id, "judge")


def test_phase_of_a_stopped_session_is_skipped_in_its_next_run(bench: Bench) -> None:
    world = World.of(bench)
    do, judge = Step(id="do", action=Action.AGENT), Step(id="judge", action=Action.JUDGE)
    phases = (Loop(id=name, body=(do, judge), max_iterations=3) for name in ("red", "green"))
    about = About(kind="workflow", name="x")
    session = world.engine.submit.program(Program(body=tuple(phases)), about).session
    ref = SessionRef(session, session)
    world.engine.control.apply(session, "stop")
    world.hints.clear()
    world.engine.skips.skip(session, "red")
    assert [address for _, address in world.hints] == ["green~1[1]/do"]
    answer = world.settle(ref, world.grant(ref, "green~1[1]/do"))
    world.settle(ref, answer.grants[0], Outcome(word="succeeded", verdict="accept"))
    assert world.engine.queries.session(session).status == "completed"


def test_question_that_waits_for_a_person_is_skipped(bench: Bench) -> None:
    world = World.of(bench)
    program = Program(
        body=(Step(id="ask", action=Action.HUMAN, inputs={"question": "?"}),
              Step(id="then", action=Action.TOOL, inputs={"tool": "x"})),
    )  # fmt: skip
    session = world.engine.submit.program(program, About(kind="flow", name="x")).session
    ref = SessionRef(session, session)
    grant = world.grant(ref, "ask")
    work = world.engine.attempts.work(ref, grant)
    world.engine.attempts.park(work, on="human", wait_ms=60_000, question="?")
    world.hints.clear()
    world.engine.skips.skip(session, "ask")
    assert [address for _, address in world.hints] == ["then"]


def test_each_node_of_a_flow_s_step_is_skipped(bench: Bench) -> None:
    world = World.of(bench)
    origin = Origin(path="steps[0]", kind="llm", index=1, total=2)
    parts = [
        Step(id=name, action=Action.AGENT, label="read", origin=origin, inputs={"lines": []})
        for name in ("read-1", "read")
    ]
    last = Step(
        id="last", action=Action.AGENT, label="last", inputs={"lines": []},
        origin=Origin(path="steps[1]", kind="llm", index=2, total=2),
    )  # fmt: skip
    program = Program(body=(*parts, last))
    session = world.engine.submit.program(program, About(kind="flow", name="x")).session
    ref = SessionRef(session, session)
    world.settle(ref, world.grant(ref, "read-1"), failed("it is broken", retryable=False))
    assert world.engine.queries.session(session).status == "failed"
    world.hints.clear()
    world.engine.skips.skip(session, "read")
    assert [address for _, address in world.hints] == ["last"]


def test_for_each_whose_list_failed_is_skipped_with_the_list(bench: Bench) -> None:
    world = graph(
        bench,
        {"name": "a", "critical": False},
        {"name": "b", "for_each": "${a.urls}", "arguments": {"x": "${item}"}},
        {"name": "c", "depends_on": ["b"]},
    )
    world.run(a=lambda: {"links": []})
    assert world.status == "failed"
    world.calls.clear()
    world.engine.skips.skip(world.id, "b")
    world.run()
    assert world.called == ["c"]
    assert world.status == "completed"


def skipped_list(bench: Bench) -> GraphWorld:
    """A session that failed after its `for_each` was skipped, before anybody had made its list."""
    world = graph(
        bench,
        {"name": "a"},
        {"name": "b", "for_each": "${a.urls}", "arguments": {"x": "${inputs.x}${item}"}},
        {"name": "c", "depends_on": ["a"]},
        inputs={"x": "u"},
    )
    world.engine.skips.skip(world.id, "b")
    world.run(a=lambda **_: {"urls": [1, 2]}, c=broken)
    assert world.status == "failed"
    return world


def test_retry_of_a_skipped_for_each_makes_its_list(bench: Bench) -> None:
    world = skipped_list(bench)
    world.engine.step_verbs.retry(world.id, "b")
    world.run()
    assert world.result.results["b"] == [{"x": "u1"}, {"x": "u2"}]


def test_fork_that_runs_a_skipped_for_each_makes_its_list(bench: Bench) -> None:
    world = skipped_list(bench)
    wish = Wish(None, Changes(inputs={"x": "v"}))
    fork = world.engine.forks.fork(world.id, wish).session
    world.ref, world.id = SessionRef(fork, fork), fork
    world.run()
    assert world.result.results["b"] == [{"x": "v1"}, {"x": "v2"}]


def test_a_list_that_is_skipped_in_its_next_run_has_no_items(bench: Bench) -> None:
    flags = iter([True, False])
    world = graph(
        bench,
        {"name": "a"},
        {"name": "b", "when": "${a.flag}"},
        {"name": "c", "for_each": "${b.urls}", "arguments": {"x": "${item}"}},
        {"name": "d", "depends_on": ["c"]},
    )
    tools: dict[str, Any] = {
        "a": lambda **_: {"flag": next(flags)}, "b": lambda **_: {"urls": [1, 2]},
    }  # fmt: skip
    world.run(**tools, d=broken)
    assert world.called == ["a", "b", "c", "c", "d"]
    world.calls.clear()
    world.engine.step_verbs.retry(world.id, "a")
    world.run(**tools)
    assert world.called == ["a", "d"]
    assert world.result.results["c"] == []
