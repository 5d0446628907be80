"""Flows become programs: what runs after what, in which conversation, and where it comes from."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from app.compiler import compile_document
from app.core.program import Action, Given, Loop, Program, Step
from app.core.references import substitute
from app.core.routing import routes
from app.errors import InvalidDocument
from app.fleet.flow_tools import apply_run
from app.security.command_permission import commands_from_outcomes, free_commands
from leadhand.flows.documents import FlowDocument, FlowRun
from tests.flows import ask, flow, llm, loop


def nodes(*steps: dict[str, Any], **more: Any) -> dict[str, Step | Loop]:
    return dict(compiled(*steps, **more).walk())


def compiled(*steps: dict[str, Any], **more: Any) -> Program:
    program = compile_document(flow(*steps, **more))
    assert routes(program)
    return Program.model_validate_json(program.model_dump_json())


def step(found: Step | Loop) -> Step:
    assert isinstance(found, Step)
    return found


def test_steps_are_called_by_their_labels_and_tell_where_they_come_from() -> None:
    found = nodes(llm(label="Write it"), loop(llm(), ask(), label="do"))
    assert list(found) == ["Write-it", "loop2", "loop2/llm1", "loop2/break2"]
    origin = found["loop2/break2"].origin
    assert origin is not None
    assert (origin.path, origin.kind, origin.index, origin.total) == (
        "steps[1].steps[1]", "break", 2, 2,
    )  # fmt: skip
    assert (origin.agent, origin.identifier) == ("writer", "main")


def test_two_steps_of_one_label_are_told_apart() -> None:
    assert list(nodes(llm(label="a"), llm(label="a"), llm(label="a"))) == ["a", "a-2", "a-3"]


def test_an_agent_type_is_an_agent_or_leads_to_one() -> None:
    found = nodes(llm(), llm(agentType="planner"), agents={"planner": "claude"})
    assert step(found["llm1"]).conversation == "writer|main"
    assert step(found["llm2"]).conversation == "claude:planner|main"
    assert step(found["llm2"]).inputs["doer"] == {"agent": "claude"}
    assert step(found["llm2"]).limits == ("agent:claude",)
    everyone = nodes(llm(), agents={"*": "codex"})
    assert step(everyone["llm1"]).inputs["doer"] == {"agent": "codex"}


@pytest.mark.parametrize(
    ("own", "around", "run", "agent"),
    [
        ({"writer": "thrifty"}, {"*": "bot"}, {}, "thrifty"),
        ({"*": "thrifty"}, {"*": "bot"}, {}, "thrifty"),
        ({}, {"*": "bot"}, {}, "bot"),
        ({"writer": "thrifty"}, {"writer": "bot"}, {}, "bot"),
        ({"writer": "thrifty"}, {"*": "bot"}, {"writer": "mine"}, "mine"),
        ({"writer": "thrifty"}, {"writer": "bot"}, {"*": "mine"}, "mine"),
    ],
)
def test_a_subflow_says_who_works_in_it_before_the_last_resort_around_it(
    own: dict[str, str], around: dict[str, str], run: dict[str, str], agent: str
) -> None:
    inner = {"steps": [llm()], "agents": own}
    document = flow({"type": "subflow", "flowNames": ["inner"]}, flows={"inner": inner},
                    agents=around)  # fmt: skip
    document = apply_run(document, FlowRun(agents=run))
    program = compile_document(document)
    (child,) = (n for _, n in program.walk() if isinstance(n, Step) and n.action == "child")
    written: Any = child.inputs["document"]
    made = compile_document(FlowDocument.model_validate(written))
    assert step(dict(made.walk())["llm1"]).inputs["doer"] == {"agent": agent}


def test_a_run_leads_no_agent_type_that_the_flow_does_not_have() -> None:
    inner = {"steps": [llm(agentType="reviewer")]}
    document = flow(llm(), {"type": "subflow", "flowNames": ["inner"]}, flows={"inner": inner})
    apply_run(document, FlowRun(agents={"reviewer": "claude", "*": "codex"}))
    with pytest.raises(InvalidDocument, match="its agentTypes are: reviewer, writer") as caught:
        apply_run(document, FlowRun(agents={"coder": "claude"}))
    assert caught.value.field == "agents.coder"


def test_messages_are_told_one_after_the_other() -> None:
    said = [{"role": "user", "content": [text]} for text in ("first", "second")]
    found = nodes(llm(label="tell", messages=said, continueOnFailure=True))
    assert [step(n).inputs["lines"] for n in found.values()] == [["first"], ["second"]]
    assert list(found) == ["tell-1", "tell"]
    assert step(found["tell"]).when == "${tell-1:succeeded}"
    assert not step(found["tell-1"]).critical


def test_an_if_gives_its_branches_the_answer() -> None:
    inner = {**ask("if"), "then": [llm(label="deep")]}
    found = nodes({**ask("if", label="so?"), "then": [inner], "else": [llm(label="not")]}, llm())
    assert list(found) == ["so", "so-then-if1", "deep", "not", "llm2"]
    assert step(found["so"]).action is Action.DECIDE
    assert found["so-then-if1"].given == Given(node="so", verdict="accept")
    assert found["deep"].given == Given(node="so-then-if1", verdict="accept")
    assert found["not"].given == Given(node="so", verdict="retry")
    assert found["llm2"].given is None


def test_a_continue_ends_the_iteration_only() -> None:
    found = nodes(loop(llm(), ask("continue", on="no"), ask()))
    assert step(found["loop1/continue2"]).ends == "iteration"
    assert step(found["loop1/continue2"]).inputs["break_on"] == "no"
    assert step(found["loop1/break3"]).ends == "loop"
    assert step(found["loop1/break3"]).queue == "agents"


def test_a_script_decides_where_there_is_a_command() -> None:
    found = nodes(loop(llm(), {"type": "break", "breakOn": "yes", "command": "sh x.sh"}))
    assert step(found["loop1/break2"]).inputs == {"script": "sh x.sh", "break_on": "yes"}
    assert step(found["loop1/break2"]).conversation is None


def test_texts_stand_for_inputs_and_for_what_steps_came_to() -> None:
    lines = [{"role": "user", "content": ["on ${inputs.what}:", "${steps.plan}", "${x}"]}]
    found = nodes(llm(label="plan"), llm(messages=lines), inputs={"what": "${plan}"})
    assert step(found["llm2"]).inputs["lines"] == ["on ${plan}:", "${top/plan:text!}", "$${x}"]


def test_a_reference_within_a_line_becomes_a_part_of_its_text() -> None:
    said = ["On ${inputs.what}: ${steps.plan}, not $${steps.plan} or ${HOME}.", "${steps.plan}!"]
    messages = [{"role": "user", "content": said}]
    document = compiled(llm(label="plan"), llm(messages=messages), inputs={"what": "${x}"})
    lines = step(dict(document.walk())["llm2"]).inputs["lines"]
    assert lines == [
        {"${text}": ["On ${x}: ", "${top/plan:text!}", ", not ${steps.plan} or ${HOME}."]},
        {"${text}": ["${top/plan:text!}", "!"]},
    ]
    assert substitute(lines, lambda _: "the ${steps.plan}") == [
        "On ${x}: the ${steps.plan}, not ${steps.plan} or ${HOME}.", "the ${steps.plan}!",
    ]  # fmt: skip


def test_words_of_a_reference_are_told_without_their_first_dollar() -> None:
    said = ["$${steps.plan}", "on $${inputs.what} and $${steps.plan}", "$${x}", "$$${inputs.what}"]
    found = nodes(llm(messages=[{"role": "user", "content": said}]), inputs={"what": "w"})
    lines = substitute(step(found["llm1"]).inputs["lines"], lambda _: "replaced")
    assert lines == [
        "${steps.plan}", "on ${inputs.what} and ${steps.plan}", "$${x}", "$${inputs.what}",
    ]  # fmt: skip


def test_what_an_agent_judges_by_is_a_text_too() -> None:
    prompts = {"a": "fit for ${inputs.who}?", "b": "${steps.plan}"}
    checks = [
        {"type": "check", "label": name, "checker": {"prompt": prompt}}
        for name, prompt in prompts.items()
    ]
    found = nodes(llm(label="plan"), *checks, inputs={"who": "${all}"})
    told = [step(found[f"{name}-said"]).inputs["checker"] for name in prompts]
    assert [one["prompt"] for one in told if isinstance(one, dict)] == [
        "fit for ${all}?", "${top/plan:text!}",
    ]  # fmt: skip


def test_an_input_without_a_value_must_be_given() -> None:
    with pytest.raises(InvalidDocument, match=r"inputs\.what"):
        compiled(llm("${inputs.what}"), inputs={"what": None})


def test_a_flow_of_no_steps_does_not_run() -> None:
    with pytest.raises(ValidationError, match="the flow has no steps"):
        compiled()


def test_subflows_run_side_by_side_and_are_counted() -> None:
    part = {"steps": [llm("on ${inputs.t}")], "inputs": {"t": None}}
    other = {"steps": [{"type": "if", "command": "x", "then": [llm()], "else": [llm("${x}")]}]}
    start = llm(label="start")
    both = {"type": "subflow", "label": "both", "flowNames": ["part"],
            "inputs": {"t": "${steps.start}"}}  # fmt: skip
    one = {"type": "subflow", "flowNames": ["other", "part2"]}
    flows = {"part": part, "other": other, "part2": other}
    found = nodes(start, both, one, flows=flows, cwd="/w", agents={"writer": "w"})
    assert list(found)[1:] == ["both-part", "both", "subflow3-other", "subflow3-part2", "subflow3"]
    assert found["subflow3-part2"].needs == ("both",)
    assert found["subflow3"].needs == ("subflow3-other", "subflow3-part2")
    assert not step(found["both-part"]).critical
    written = step(found["both-part"]).inputs["document"]
    assert isinstance(written, dict)
    assert written["inputs"] == {"t": "${top/start:text!}"}
    assert (written["cwd"], written["agents"]) == ("/w", {"writer": "w"})


def test_a_childs_own_texts_and_commands_are_literal() -> None:
    other = {"steps": [{"type": "if", "command": "x", "then": [llm()], "else": [llm("${x}")]}]}
    found = nodes({"type": "subflow", "flowNames": ["other"]}, flows={"other": other})
    written = step(found["subflow1-other"]).inputs["document"]
    assert isinstance(written, dict)
    assert "$${x}" in str(written)
    child = FlowDocument.model_validate(written)
    assert list(free_commands(child)) == ["steps.0.command"]
    assert list(commands_from_outcomes(child, written)) == []


def test_only_what_a_subflow_needs_is_taken_along() -> None:
    say = [{"role": "user", "content": ["x"]}]
    who = {"agentType": "a", "identifier": "i"}
    outer = {"steps": [{"type": "subflow", "flowNames": ["inner"]}]}
    inner = {"steps": [{"type": "command", "commandName": "c", **who}]}
    found = nodes(
        {"type": "subflow", "flowNames": ["outer", "alone"]},
        flows={"outer": outer, "inner": inner, "alone": {"steps": [llm()]}},
        commands={"c": say, "other": say},
    )
    taken = step(found["subflow1-outer"]).inputs["document"]
    alone = step(found["subflow1-alone"]).inputs["document"]
    assert isinstance(taken, dict)
    assert isinstance(alone, dict)
    assert (list(taken["flows"]), list(taken["commands"])) == (["inner"], ["c"])  # type: ignore[arg-type]
    assert (alone["flows"], alone["commands"]) == ({}, {})


def test_a_check_fails_the_flow_unless_it_accepts() -> None:
    found = nodes(llm(label="w"), {"type": "check", "label": "good", "checker": "pytest -q"})
    said = step(found["good-said"]).inputs
    assert (said["work"], said["tools_failed"]) == ("${w:text}", "${w:tools_failed}")
    assert step(found["good-said"]).inputs["work"] == "${w:text}"
    arguments = {"verdict": "${good-said:verdict}", "text": "${good-said:text}"}
    assert step(found["good"]).inputs == {"tool": "flow.require", "arguments": arguments}
    assert step(found["good"]).critical


def test_an_answer_becomes_an_instruction_after_its_question() -> None:
    human = {"type": "human", "label": "choose", "question": "Which?", "agentType": "w",
             "identifier": "i"}  # fmt: skip
    found = nodes(human, {"type": "reset", "agentType": "w", "identifier": "i"})
    assert list(found) == ["choose-ask", "choose", "reset2"]
    lines = step(found["choose"]).inputs["lines"]
    assert isinstance(lines, list)
    assert [line for line in lines if line] == [
        "# The question to a person", "Which?", "# The answer", "${choose-ask:text}",
    ]  # fmt: skip
    assert step(found["reset2"]).conversation == "w|i"
