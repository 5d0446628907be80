"""Suggestions of `explain`: each failure is made, what is suggested is done, and it works."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import click
import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Step
from app.engine import Engine
from app.errors import ReferenceUnresolved
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from leadhand.cli import cli
from leadhand.graphs.values import as_text
from leadhand.models.documents import Budget
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.explain import SuggestedAction
from tests.engine.children.test_children import family
from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.world import World
from tests.flows import flow


def carry_out(engine: Engine, action: SuggestedAction) -> str:
    """Do what the command does, with its fields as the API takes them; returns the session."""
    word, verb, *arguments = shlex.split(action.command)
    command = cli.get_command(click.Context(cli), verb)
    assert command is not None
    parsed = command.make_context(verb, arguments).params
    assert (word, verb, parsed["session"]) == ("leadhand", action.verb, action.session)
    assert parsed.get("step") == action.address
    given: Mapping[str, Any] = action.arguments
    match action.verb:
        case "resume":
            assert parsed["max_iterations"] == given.get("max_iterations")
            budget = Budget.model_validate(given["budget"]) if "budget" in given else None
            most = given.get("max_iterations")
            takes = bool(given.get("accept_protected"))
            assert parsed["accept_protected"] is takes
            engine.control.apply(
                action.session,
                "resume",
                max_iterations=most,
                budget=budget,
                accept_protected=takes,
            )
        case "retry":
            engine.step_verbs.retry(action.session, str(action.address))
        case "skip":
            engine.skips.skip(action.session, str(action.address))
        case "fork":
            changes = Changes(tools=given.get("tools", {}), inputs=given.get("inputs", {}))
            assert [*parsed["inputs"]] == [f"{n}={as_text(v)}" for n, v in changes.inputs.items()]
            wish = Wish(None, changes, as_is=given["folder"] == "as-is")
            return engine.forks.fork(action.session, wish).session
        case _:
            return engine.reruns.rerun(action.session, Changes()).session
    return action.session


def suggested(engine: Engine, session: str) -> list[SuggestedAction]:
    view = engine.explainer.explain(session)
    assert {action.command for action in view.actions} <= set(view.next)
    return view.actions


def the(actions: list[SuggestedAction], verb: str) -> SuggestedAction:
    return next(action for action in actions if action.verb == verb)


FAILURES = {
    ReasonCode.TIMEOUT: "it took longer than 60 s",
    ReasonCode.LOST: "3 attempts were lost",
    ReasonCode.INVALID_ANSWER: "it answered with no list",
    ReasonCode.FAILED_STEP: "ValueError: it is broken",
}


def publish_tool(world: World, name: str) -> None:
    """Publish the inventory of a worker with one tool."""
    told = {
        "place": "here", "queues": [], "roots": [], "concurrency": 1, "schema_version": 99,
        "tools_here": [{"name": name, "takes_any": True}], "tools": [name], "seen_ms": world.now,
    }  # fmt: skip
    world.engine.store.fleet().publish_inventory("at-here", json.dumps(told))


def failed_graph(bench: Bench, outcome: Outcome) -> GraphWorld:
    """A graph whose first step failed with this outcome."""
    world = GraphWorld(World.of(bench), [{"name": "a"}, {"name": "b", "depends_on": ["a"]}])
    work = world.engine.attempts.work(world.ref, world.grant("a"))
    world.engine.attempts.settle(work, outcome, take=[], worker="w")
    assert world.status == "failed"
    world.world.hints.clear()
    return world


def failure(code: ReasonCode, text: str) -> Outcome:
    return Outcome(word="failed", reason=Reason(code=code, text=text), retryable=False)


def test_missing_tool_is_replaced_by_the_nearest_one(bench: Bench) -> None:
    text = "ToolNotFound: tool 'papers:searched' is not known here; known are papers:search"
    world = failed_graph(bench, failure(ReasonCode.FAILED_STEP, text))
    publish_tool(world.world, "papers:search")
    first = suggested(world.engine, world.id)[0]
    assert (first.verb, first.arguments["tools"]) == ("fork", {"a": "papers:search"})
    fork = carry_out(world.engine, first)
    ref = SessionRef(fork, fork)
    program = world.engine.registry.program(world.engine.store.fields(ref)["program"])
    assert program.step("a").inputs["tool"] == "papers:search"


def verbs(actions: list[SuggestedAction]) -> list[tuple[str, str | None]]:
    return [(action.verb, action.address) for action in actions]


def test_missing_value_is_made_again_by_its_step(bench: Bench) -> None:
    first = {"name": "a", "tool": "papers:search"}
    world = GraphWorld(World.of(bench), [first, {"name": "b", "arguments": {"x": "${a.x}"}}])
    world.run(a=lambda: {"y": 1})
    assert world.status == "failed"
    world.calls.clear()
    actions = suggested(world.engine, world.id)
    # The step itself fails in the same way, and so does what a resume repeats.
    assert verbs(actions) == [("retry", "a"), ("skip", "b")]
    assert not any(one.startswith("leadhand resume") for one in next_of(world))
    action = actions[0]
    carry_out(world.engine, action)
    world.run(a=lambda: {"x": 2})
    assert world.result.results["b"] == {"x": 2}


def next_of(world: GraphWorld) -> list[str]:
    return world.engine.explainer.explain(world.id).next


ODD = "tool 't': argument 'n': it is \"x\"; it is odd"
#: Arguments of a step and an input that do not fit, what the tool says, and a value that fits.
UNFIT: dict[str, tuple[dict[str, str], Any, str, Any]] = {
    "argument": ({"n": "${inputs.size}"}, "x", ODD, "3"),
    "by echo": ({"n": "${same.n}"}, "x", ODD, "3"),
    "missing": ({"n": "${same.n.of}"}, {"off": 1}, "", {"of": 3}),
}


@pytest.mark.parametrize("cause", UNFIT)
def test_input_that_a_step_cannot_use_is_changed_in_a_fork(bench: Bench, cause: str) -> None:
    arguments, size, text, better = UNFIT[cause]
    same = {"name": "same", "arguments": {"n": "${inputs.size}"}}
    steps = [same, {"name": "b b", "tool": "papers:search", "arguments": arguments}]
    world = GraphWorld(World.of(bench), steps, inputs={"size": size, "other": 1})

    def refuse(n: object) -> None:
        raise ValueError(text)

    world.run(**{"b b": refuse})
    assert world.status == "failed"
    fork, skip = actions = suggested(world.engine, world.id)
    assert verbs(actions) == [("fork", None), ("skip", "b b")]
    assert fork.arguments == {"inputs": {"size": size}, "folder": "as-is"}
    old, new = (shlex.quote(f"size={as_text(one)}") for one in (size, better))
    assert fork.command == f"leadhand fork {world.id} --set {old} --folder as-is"
    world.world.hints.clear()
    carry_out(world.engine, fork)
    world.world.hints.clear()
    changed = {"inputs": {"size": better}, "folder": "as-is"}
    command = fork.command.replace(old, new)
    made = carry_out(
        world.engine, fork.model_copy(update={"arguments": changed, "command": command})
    )
    other = GraphWorld.of(world, made)
    other.run(**{"b b": lambda n: n})
    assert (other.called[-1], other.status) == ("b b", "completed")
    world.world.hints.clear()
    carry_out(world.engine, skip)
    assert world.status == "completed"


def test_item_that_is_refused_leads_to_the_step_and_the_input_of_its_list(bench: Bench) -> None:
    steps: list[dict[str, Any]] = [
        {"name": "list", "tool": "papers:search", "arguments": {"of": "${inputs.topic}"}},
        {"name": "each one", "for_each": "${list}", "arguments": {"n": "${item.n}"}},
    ]
    world = GraphWorld(World.of(bench), steps, inputs={"topic": "queues"})
    world.run(list=lambda of: [{"n": of}, {"m": 2}])
    assert world.status == "failed"
    actions = suggested(world.engine, world.id)
    assert [(one.verb, one.address, one.arguments.get("inputs")) for one in actions] == [
        ("retry", "list", None), ("fork", None, {"topic": "queues"}),
        ("skip", "each one#2", None), ("skip", "each one", None),
    ]  # fmt: skip
    carry_out(world.engine, actions[0])
    world.run(list=lambda of: [{"n": of}])
    assert world.status == "completed"


def test_item_that_failed_is_skipped_alone(bench: Bench) -> None:
    steps = [{"name": "each one", "for_each": [1, 2, 3], "arguments": {"n": "${item}"}}]
    world = GraphWorld(World.of(bench), steps)
    world.run(**{"each one": lambda n: 1 // (n - 2)})
    actions = suggested(world.engine, world.id)
    assert verbs(actions)[1] == ("skip", "each one#2")
    assert actions[1].command == f"leadhand skip {world.id} 'each one#2'"
    carry_out(world.engine, actions[1])
    world.run()
    assert world.result.results["each one"] == [-1, None, {"n": 3}]


def test_step_whose_list_is_none_is_skipped_by_its_name(bench: Bench) -> None:
    steps: list[dict[str, Any]] = [
        {"name": "list", "tool": "papers:search"},
        {"name": "each", "for_each": "${list}", "arguments": {"n": "${item}"}},
    ]
    world = GraphWorld(World.of(bench), steps)
    world.run(list=lambda: {"n": 1})
    assert world.status == "failed"
    actions = suggested(world.engine, world.id)
    assert verbs(actions) == [("retry", "list"), ("skip", "each")]
    carry_out(world.engine, actions[1])
    assert world.status == "completed"


def test_step_whose_arguments_its_tool_has_not_is_only_skipped(bench: Bench) -> None:
    text = "tool 'echo': there is no argument 'x'; there are: y"
    world = failed_graph(bench, failure(ReasonCode.FAILED_STEP, text))
    (skip,) = suggested(world.engine, world.id)
    carry_out(world.engine, skip)
    world.run()
    assert world.status == "completed"


def test_input_that_looks_like_a_key_is_in_no_command(bench: Bench) -> None:
    same = {"name": "same", "arguments": {"n": "${inputs.key}"}}
    steps = [same, {"name": "a", "arguments": {"n": "${same.n.of}"}}]
    world = GraphWorld(World.of(bench), steps, inputs={"key": "ghp_abcdefgh12345678"})
    world.run()
    assert world.status == "failed"
    assert verbs(suggested(world.engine, world.id)) == [("skip", "a")]


def test_step_of_a_flow_made_no_value(bench: Bench) -> None:
    world = World.of(bench)
    tool = {"type": "tool", "tool": "papers:search", "arguments": {}}
    use = {**tool, "label": "use it", "arguments": {"n": "${steps.find.n}"}}
    session = world.engine.submit.document(flow({**tool, "label": "find"}, use)).session
    ref = SessionRef(session, session)
    world.settle(ref, world.grant(ref, "find"), Outcome(word="succeeded", value={"m": 1}))
    grant = world.grant(ref, "use-it")
    with pytest.raises(ReferenceUnresolved) as error:
        world.engine.attempts.work(ref, grant)
    work = world.engine.attempts.bare_work(ref, grant)
    failed = failure(ReasonCode.FAILED_STEP, str(error.value))
    world.engine.attempts.settle(work, failed, take=[], worker="w")
    actions = suggested(world.engine, session)
    assert verbs(actions) == [("retry", "find"), ("skip", "use it")]
    world.hints.clear()
    carry_out(world.engine, actions[0])
    assert [address for _, address in world.hints] == ["find~2"]


def test_value_of_a_name_that_is_part_of_another_word_is_not_its_source(bench: Bench) -> None:
    last = {"name": "b", "arguments": {"x": "${data.a}"}, "depends_on": ["a"]}
    data = {"name": "data", "tool": "papers:search"}
    world = GraphWorld(World.of(bench), [{"name": "a"}, data, last])
    world.run(data=lambda: {"y": 1})
    assert world.status == "failed"
    action = suggested(world.engine, world.id)[0]
    assert (action.verb, action.address) == ("retry", "data")


def test_step_of_a_list_is_named_without_its_run(bench: Bench) -> None:
    steps = [{"name": "a", "for_each": [1], "arguments": {"n": "${item}"}}]
    world = GraphWorld(World.of(bench), steps)
    for _ in range(2):
        world.run(a=lambda n: 1 / (n - 1))
        view = world.engine.explainer.explain(world.id)
        assert verbs(view.actions) == [
            ("retry", "a"), ("skip", "a#1"), ("skip", "a"), ("resume", None),
        ]  # fmt: skip
        assert view.causes[-1].label == "a 1"
        carry_out(world.engine, view.actions[0])


def test_steps_of_a_flow_without_labels_are_named_by_their_addresses(bench: Bench) -> None:
    world = World.of(bench)
    tool = {"type": "tool", "tool": "papers:search", "arguments": {}}
    session = world.engine.submit.document(flow(tool, tool)).session
    ref = SessionRef(session, session)
    (address,) = {address for _, address in world.hints}
    world.settle(ref, world.grant(ref, address), failure(ReasonCode.FAILED_STEP, "broken"))
    retry = the(suggested(world.engine, session), "retry")
    assert retry.address == address
    carry_out(world.engine, retry)


def test_addresses_of_a_child_are_not_those_of_its_parent(store_url: str) -> None:
    world = World(store_url)
    parent, child = family(world)
    grant = world.grant(child, "loop~1[1]/do")
    world.settle(child, grant, failure(ReasonCode.FAILED_STEP, "it is broken"))
    world.later(0)
    view = world.engine.explainer.explain(parent.id)
    assert f"leadhand explain {child.id}" in view.next
    assert view.causes[-1].at == "loop~1[1]/do"
    assert {(action.verb, action.address) for action in view.actions} == {
        ("retry", "kid"), ("skip", "kid"), ("resume", None),
    }  # fmt: skip


def test_missing_tool_of_a_flow_is_replaced_by_the_nearest_one(bench: Bench) -> None:
    world = World.of(bench)
    call: dict[str, Any] = {"type": "tool", "tool": "papers:searched", "arguments": {}}
    side = {
        "type": "parallel",
        "branches": [{"steps": [call]}, {"steps": [{"type": "wait", "seconds": 1}]}],
    }
    looped = {"type": "startLoop", "maxIterations": 2, "steps": [{**call, "label": "look"}]}
    session = world.engine.submit.document(flow(call, side, looped)).session
    text = "ToolNotFound: tool 'papers:searched' is not known here; known are papers:search"
    ref = SessionRef(session, session)
    (address,) = {address for _, address in world.hints}
    work = world.engine.attempts.work(ref, world.grant(ref, address))
    reason = failure(ReasonCode.FAILED_STEP, text)
    world.engine.attempts.settle(work, reason, take=[], worker="w")
    publish_tool(world, "papers:search")
    first = suggested(world.engine, session)[0]
    assert first.arguments["tools"] == {"papers:searched": "papers:search"}
    fork = carry_out(world.engine, first)
    ref = SessionRef(fork, fork)
    program = world.engine.registry.program(world.engine.store.fields(ref)["program"])
    found = [node.inputs for _, node in program.walk() if isinstance(node, Step)]
    tools = [inputs["tool"] for inputs in found if "tool" in inputs]
    assert (tools.count("papers:search"), tools.count("papers:searched")) == (3, 0)


def test_steps_are_named_as_their_document_has_them(bench: Bench) -> None:
    world = GraphWorld(World.of(bench), [{"name": "Do this, then that"}])
    work = world.engine.attempts.work(world.ref, world.grant("Do-this-then-that"))
    reason = failure(ReasonCode.FAILED_STEP, "it is broken")
    world.engine.attempts.settle(work, reason, take=[], worker="w")
    view = world.engine.explainer.explain(world.id)
    assert [(cause.at, cause.label) for cause in view.causes if cause.at] == [
        ("Do-this-then-that", "Do this, then that"),
    ]  # fmt: skip
    assert f"leadhand skip {world.id} 'Do this, then that'" in view.next
    claimed = world.world.told(world.ref, "step.claimed")
    assert [fields.get("label") for _, fields in claimed if isinstance(fields, dict)] == [
        "Do this, then that",
    ]  # fmt: skip
    carry_out(world.engine, the(view.actions, "skip"))
    assert world.status == "completed"
