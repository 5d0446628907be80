"""Branches of a flow that run side by side: what waits for what, and what others may refer to."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.compiler.flow import compile_flow
from app.core.outcomes import Outcome
from app.core.program import Loop, needs_of
from leadhand.flows.documents import ANY_STRUCTURE, FlowDocument
from leadhand.flows.faults import all_faults
from tests.engine.world import World
from tests.flows import flow


def tool(label: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool", "tool": "echo", "label": label, "arguments": {}, **more}


def parallel(*branches: list[dict[str, Any]], label: str = "both") -> dict[str, Any]:
    return {
        "type": "parallel", "label": label, "branches": [{"steps": list(one)} for one in branches],
    }  # fmt: skip


def llm(label: str, identifier: str) -> dict[str, Any]:
    content = [{"role": "user", "content": ["hello"]}]
    return {
        "type": "llm", "agentType": "claude", "identifier": identifier, "label": label,
        "messages": content,
    }  # fmt: skip


def needs(*steps: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return dict(needs_of(compile_flow(flow(*steps)).body))


def faults(*steps: dict[str, Any]) -> list[tuple[str, str]]:
    return all_faults(FlowDocument, {"kind": "flow", "steps": list(steps)}).faults


def test_branches_wait_for_what_is_before_and_the_next_step_for_all_of_them() -> None:
    found = needs(
        tool("first"), parallel([tool("a1"), tool("a2")], [tool("b1")]), tool("last"),
    )  # fmt: skip
    assert found == {
        "first": (), "a1": ("first",), "a2": ("a1",), "b1": ("first",), "both": ("a2", "b1"),
        "last": ("both",),
    }  # fmt: skip


def test_branches_at_the_beginning_start_at_once() -> None:
    found = needs(parallel([tool("a")], [tool("b")]))
    assert (found["a"], found["b"], found["both"]) == ((), (), ("a", "b"))


def test_subflows_and_ifs_in_branches_do_not_wait_for_the_branch_before() -> None:
    decide = {
        "type": "if", "label": "which", "command": "true", "then": [tool("yes")],
        "else": [tool("no")],
    }  # fmt: skip
    subflow = {"type": "subflow", "label": "others", "flowNames": ["one", "two"]}
    document = flow(tool("first"), parallel([tool("a")], [subflow], [decide]))
    small = {"steps": [tool("x")]}
    fields = {**document.model_dump(by_alias=True), "flows": {"one": small, "two": small}}
    found = dict(needs_of(compile_flow(FlowDocument.model_validate(fields)).body))
    assert found["others-one"] == found["others-two"] == ("first",)
    assert set(found["others"]) == {"others-one", "others-two"}
    assert found["which"] == ("first",)
    assert found["yes"] == ("which",)
    assert found["both"] == ("a", "others", "no")


def test_branches_within_a_loop_are_in_its_block() -> None:
    loop = {
        "type": "startLoop", "label": "again", "maxIterations": 2,
        "steps": [parallel([tool("a")], [tool("b")]), tool("after")],
    }  # fmt: skip
    (node,) = compile_flow(flow(loop)).body
    assert isinstance(node, Loop)
    assert needs_of(node.body)["after"] == ("both",)


def test_branches_run_side_by_side(store_url: str) -> None:
    world = World(store_url)
    steps = [
        tool("first"),
        parallel([tool("a1"), tool("a2")], [tool("b1")]),
        tool("last", arguments={"all": "${steps.both}", "one": "${steps.b1}"}),
    ]
    session = world.engine.submit.document(flow(*steps)).session
    ref = world.engine.queries.ref(session)

    def done(address: str, text: str = "") -> None:
        world.settle(ref, world.grant(ref, address), Outcome(word="succeeded", text=text))

    def live() -> set[str]:
        return set(world.engine.store.members(ref, "live"))

    done("first")
    assert live() == {"a1", "b1"}
    done("b1", "from b")
    assert live() == {"a1"}
    done("a1")
    last_of_a = Outcome(word="succeeded", text="from a")
    (grant,) = world.settle(ref, world.grant(ref, "a2"), last_of_a).grants
    assert grant.address == "both"
    inputs = world.engine.attempts.work(ref, grant).inputs
    assert inputs["arguments"] == {"branches": ["from a", "from b"]}
    world.settle(ref, grant, Outcome(word="succeeded", text="joined"))
    last = world.engine.attempts.work(ref, world.grant(ref, "last")).inputs
    assert last["arguments"] == {"all": "joined", "one": "from b"}


def test_branches_do_not_see_each_others_labels() -> None:
    other = tool("b", arguments={"from": "${steps.a}"})
    ((path, message),) = faults(parallel([tool("a")], [other]))
    assert path == "steps[0].branches[1].steps[0].arguments.from"
    assert "'a' is not visible here" in message


def test_one_conversation_cannot_go_on_in_two_branches() -> None:
    nested = {"type": "startLoop", "steps": [llm("b", "x")]}
    ((path, message),) = faults(parallel([llm("a", "x")], [nested]))
    assert path == "steps[0].branches[1].steps[0].steps[0].identifier"
    assert "branches[0] has the conversation 'x' of 'claude', too" in message
    assert faults(parallel([llm("a", "x"), llm("c", "x")], [llm("b", "y")])) == []


def test_branch_cannot_leave_the_loop_around_it() -> None:
    leave = {"type": "break", "command": "true", "breakOn": "yes"}
    loop = {"type": "startLoop", "steps": [parallel([tool("a")], [leave])]}
    ((path, message),) = faults(loop)
    assert path == "steps[0].steps[0].branches[1].steps[0]"
    assert "break is used outside a loop" in message
    inner = {"type": "startLoop", "steps": [tool("b"), leave]}
    assert faults(parallel([tool("a")], [inner])) == []


@pytest.mark.parametrize("branches", [[], [{"steps": [tool("a")]}], [{"steps": []}] * 2])
def test_parallel_step_has_at_least_two_branches_with_steps(branches: list[object]) -> None:
    with pytest.raises(ValidationError):
        FlowDocument.model_validate(
            {"kind": "flow", "steps": [{"type": "parallel", "branches": branches}]},
            context=ANY_STRUCTURE,
        )


def test_all_faults_within_branches_are_found() -> None:
    bad = {"type": "wait", "seconds": "x"}
    unknown = tool("b", arguments={"from": "${steps.none}"})
    for step, field in ((bad, "seconds"), (unknown, "arguments.from")):
        found = [path for path, _ in faults(parallel([step], [tool("a")]))]
        assert found == [f"steps[0].branches[0].steps[0].{field}"]
