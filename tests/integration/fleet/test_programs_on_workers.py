"""Programs written by hand, carried out by real workers: everything that the engine can do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Node, Program, RetryPolicy, Step
from app.sessions.submit import About
from tests.fleet import Fleet
from tests.redis_users import of_broker
from tests.waiting import wait_until


@pytest.fixture(scope="module")
def module_fleet(
    tmp_path_factory: pytest.TempPathFactory, module_store_url: str
) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("fleet")
    broker = of_broker(module_store_url)
    fleet = Fleet(folder, module_store_url, broker, lease_s=5)
    fleet.worker("one")
    yield fleet
    fleet.close()


@pytest.fixture
def fleet(module_fleet: Fleet) -> Fleet:
    return module_fleet


def tool(name: str, *, tool: str = "echo", **more: object) -> Step:
    arguments: JsonValue = more.pop("arguments", {})  # type: ignore[assignment]
    inputs = {"tool": tool, "arguments": arguments}
    return Step.model_validate({"id": name, "action": "tool", "inputs": inputs, **more})


def run(fleet: Fleet, *body: Node) -> str:
    program = Program(name="by hand", body=body)
    about = About(kind="loop", name="by hand", cwd=str(fleet.folder), place="local")
    return fleet.engine.submit.program(program, about).session


def outcome(fleet: Fleet, session: str, address: str) -> Outcome:
    ref = SessionRef(session, session)
    return Outcome.model_validate_json(fleet.engine.store.values(ref, "out", [address])[address])


def test_results_flow_through_references(fleet: Fleet) -> None:
    session = run(
        fleet,
        tool("first", arguments={"a": {"b": [1, 2]}}),
        tool(
            "second", arguments={"got": "${first.a.b.1}", "text": "$${first}", "none": "${first.x}"}
        ),
    )
    assert fleet.ended(session).status == "completed"
    got = outcome(fleet, session, "second").value
    assert got == {"got": 2, "text": "${first}", "none": None}


def test_a_for_each_runs_an_item_per_element(fleet: Fleet) -> None:
    session = run(
        fleet,
        tool("list", arguments={"items": ["a", "b", "c"]}),
        tool("each", for_each="${list.items}", arguments={"item": "${item}", "n": "${index}"}),
        tool("after", arguments={}),
    )
    assert fleet.ended(session).status == "completed"
    values = [outcome(fleet, session, f"each~1#{n}").value for n in (1, 2, 3)]
    assert values == [{"item": i, "n": n} for n, i in enumerate("abc", 1)]


def test_a_for_each_without_a_list_fails_with_its_reason(fleet: Fleet) -> None:
    session = run(
        fleet,
        tool("list", arguments={"items": 7}),
        tool("each", for_each="${list.items}"),
    )
    result = fleet.ended(session)
    assert result.status == "failed"
    assert result.reason is not None
    assert "needs a list" in result.reason.text


def test_a_step_whose_condition_does_not_hold_is_skipped(fleet: Fleet) -> None:
    session = run(
        fleet,
        tool("decide", arguments={"go": False}),
        tool("maybe", when="${decide.go}"),
        tool("after"),
    )
    assert fleet.ended(session).status == "completed"
    states = {s.address: s.state for s in fleet.engine.queries.steps(session).items}
    assert states == {"decide": "succeeded", "maybe": "skipped", "after": "succeeded"}


def test_nested_loops_turn_and_break(fleet: Fleet) -> None:
    def leave(name: str, at: int) -> Step:
        command = f'test "$LEADHAND_ITERATION" = {at}'
        return Step(id=name, action=Action.BREAK, inputs={"command": command}, timeout_s=20)

    inner = Loop(id="inner", body=(tool("work"), leave("ask", 2)), max_iterations=5)
    session = run(fleet, Loop(id="outer", body=(inner, leave("done", 2)), max_iterations=5))
    assert fleet.ended(session).status == "completed"
    asked = sorted(
        s.address for s in fleet.engine.queries.steps(session).items if "ask" in s.address
    )
    assert asked == [
        f"outer~1[{o}]/inner~1[{i}]/ask" for o in (1, 2) for i in (1, 2)
    ]  # fmt: skip


def test_a_wait_parks_and_goes_on(fleet: Fleet) -> None:
    pause = Step(id="pause", action=Action.WAIT, inputs={"seconds": 0.5})
    session = run(fleet, pause, tool("after"))
    wait_until(lambda: fleet.engine.queries.session(session).status == "waiting")
    assert fleet.ended(session).status == "completed"


def test_a_human_is_asked_and_the_answer_goes_on(fleet: Fleet) -> None:
    ask = Step(id="ask", action=Action.HUMAN, inputs={"question": "which?"}, timeout_s=600)
    session = run(fleet, ask, tool("after", arguments={"said": "${ask.text}"}))
    wait_until(lambda: fleet.engine.queries.session(session).status == "waiting")
    ref = SessionRef(session, session)
    parked = fleet.engine.store.steps(ref, ["ask"])["ask"]
    assert parked.parked is not None
    assert parked.parked["question"] == "which?"
    said = Outcome(word="succeeded", text="that one")
    assert (
        fleet.engine.answers.settle(ref, "ask", said, fence=parked.fence, by="me").word == "settled"
    )
    late = fleet.engine.answers.settle(ref, "ask", said, fence=parked.fence, by="you")
    assert (late.word, late.by) == ("superseded", "me")
    assert fleet.ended(session).status == "completed"
    assert outcome(fleet, session, "after").value == {"said": "that one"}


def child(folder: Path, checker: str) -> Step:
    document: dict[str, JsonValue] = {
        "kind": "loop",
        "task": "t",
        "checkers": [{"command": checker}],
        "doer": {"command": "true"},
        "max_iterations": 1,
        "cwd": str(folder),
    }
    return Step(id="child", action=Action.CHILD, inputs={"document": document})


def test_a_child_session_ends_and_its_parent_goes_on(fleet: Fleet) -> None:
    session = run(fleet, child(fleet.folder, "true"), tool("after"))
    assert fleet.ended(session).status == "completed"
    value = outcome(fleet, session, "child").value
    assert isinstance(value, dict)
    kid = fleet.engine.queries.session(str(value["session"]))
    assert (kid.parent, kid.root, kid.status) == (session, session, "completed")


def test_a_childs_failure_is_its_parents_root_cause(fleet: Fleet) -> None:
    session = run(fleet, child(fleet.folder, "false"), tool("after"))
    result = fleet.ended(session)
    assert result.status == "failed"
    assert result.reason is not None
    assert result.reason.root.code == "max_iterations"


def test_aborting_a_parent_aborts_its_child(fleet: Fleet) -> None:
    session = run(fleet, child(fleet.folder, "sleep 60"), tool("after"))
    ref = SessionRef(session, session)
    (kid,) = wait_until(lambda: fleet.engine.store.children(ref))
    wait_until(lambda: fleet.engine.queries.session(session).status == "waiting")
    fleet.engine.control.apply(session, "abort")
    wait_until(lambda: fleet.engine.queries.session(kid).status == "aborted", timeout=15)
    wait_until(lambda: fleet.engine.queries.session(session).status == "aborted", timeout=15)


def test_a_failed_tool_is_tried_again_by_its_policy(fleet: Fleet) -> None:
    policy = RetryPolicy(retries=2, backoff_s=0.1)
    session = run(fleet, tool("none", tool="nowhere", retry=policy.model_dump()))
    result = fleet.ended(session)
    assert result.status == "failed"


def test_a_passed_over_failure_is_a_warning(fleet: Fleet) -> None:
    session = run(fleet, tool("none", tool="nowhere", critical=False), tool("after"))
    result = fleet.ended(session)
    assert result.status == "completed"
    (warning,) = result.warnings
    assert warning.startswith("none failed and was passed over: ")
    assert "nowhere" in warning


def test_an_unresolved_reference_fails_its_step_and_says_which(fleet: Fleet) -> None:
    result = fleet.ended(run(fleet, tool("one", arguments={"x": "${nobody.there}"})))
    assert result.status == "failed"
    assert result.reason is not None
    assert "${nobody}" in result.reason.text
