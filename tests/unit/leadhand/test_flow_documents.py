"""Flow documents: valid files, and the messages for invalid ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from leadhand.flows.documents import FlowDefinition
from leadhand.flows.file_reading import FlowInvalid, flow_in, read_command, read_flow, read_markdown
from leadhand.flows.structure import nest_steps
from leadhand.models.tool_schemas import BUILT_IN_TOOLS
from tests.flows import ask, llm, loop
from workers.tools.tool import TOOLS

ROOT = Path(__file__).resolve().parents[3]
START: dict[str, Any] = {"type": "startLoop"}
END: dict[str, Any] = {"type": "endLoop"}


def wrong(*steps: dict[str, Any], **more: Any) -> FlowInvalid:
    with pytest.raises(FlowInvalid) as error:
        flow_in({"steps": list(steps), **more}, "x.json")
    return error.value


def paths(flow: FlowDefinition) -> list[Any]:
    def within(placed: Any) -> list[Any]:
        return [(one.path, one.index, one.total, within(one.body)) for one in placed]

    return within(nest_steps(flow.steps))


def test_flat_loops_lie_in_one_another_as_nested_ones_do() -> None:
    steps: list[Any] = [START, llm(), START, llm(), ask(), END, ask(), END]
    flat = flow_in({"steps": steps}, "x.json")
    assert paths(flat) == [
        ("steps[0]", 1, 8, [
            ("steps[1]", 2, 8, []),
            ("steps[2]", 3, 8, [("steps[3]", 4, 8, []), ("steps[4]", 5, 8, [])]),
            ("steps[6]", 7, 8, []),
        ])
    ]  # fmt: skip
    nested = flow_in({"steps": [loop(llm(), loop(llm(), ask()), ask())]}, "x.json")
    assert paths(nested) == [
        ("steps[0]", 1, 1, [
            ("steps[0].steps[0]", 1, 3, []),
            ("steps[0].steps[1]", 2, 3, [("steps[0].steps[1].steps[0]", 1, 2, []),
                                        ("steps[0].steps[1].steps[1]", 2, 2, [])]),
            ("steps[0].steps[2]", 3, 3, []),
        ])
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "path", "said"),
    [
        ([START, llm()], "steps[0]", "the loop has no end"),
        ([llm(), END], "steps[1]", "no loop is open"),
        ([loop(llm()), END], "steps[1]", "no loop is open"),
        ([START, END], "steps[0]", "the loop is empty"),
        ([loop()], "steps[0]", "the loop is empty"),
        ([llm(), ask()], "steps[1]", "break is used outside a loop"),
        ([loop(llm()), ask("continue")], "steps[1]", "continue is used outside a loop"),
        (
            [{"type": "if", "command": "x", "then": [ask()]}],
            "steps[0].then[0]",
            "outside a loop",
        ),
        ([loop(ask(on="maybe"))], "steps[0].steps[0].breakOn", "'yes' or 'no'"),
        ([loop(llm(), maxIterations=0)], "steps[0].maxIterations", "1 to 10000"),
        ([loop(llm(), maxIterations=True)], "steps[0].maxIterations", "valid integer"),
        ([llm(surprise=1)], "steps[0].surprise", "no such field"),
        ([llm(" ")], "steps[0].messages[0].content[0]", "it is empty"),
        ([llm(messages=[])], "steps[0].messages", "at least one"),
        ([{"type": "frobnicate"}], "steps[0]", "type is 'frobnicate'; give one of 'llm'"),
        ([{"label": "x"}], "steps[0]", "`type` is missing"),
        ([loop({"type": "break", "breakOn": "no"})], "steps[0].steps[0].agentType", "is missing"),
        (
            [loop({"type": "break", "breakOn": "no", "agentType": "a", "identifier": "i"})],
            "steps[0].steps[0].question",
            "is missing",
        ),
        ([loop(ask(command="true"))], "steps[0].steps[0].command", "a script or an agent"),
        ([llm("${inputs.x}")], "steps[0].messages[0].content[0]", "uses the input 'x'"),
        ([llm("${steps.x}")], "steps[0].messages[0].content[0]", "label 'x' is not visible"),
        (
            [loop(llm(label="in")), llm("${steps.in}")],
            "steps[1].messages[0].content[0]",
            "refer to an earlier step",
        ),
        (
            [loop({"type": "break", "breakOn": "yes", "command": "echo ${inputs.x}"})],
            "steps[0].steps[0].command",
            "not put into shell commands",
        ),
        ([llm(working_folder="../x")], "steps[0].working_folder", "beneath the run's own"),
        ([{"type": "subflow", "flowNames": ["a", "a"]}], "steps[0].flowNames", "listed twice"),
        ([{"type": "command", "agentType": "a", "identifier": "i", "commandName": "../x"}],
         "steps[0].commandName", "give 1 to 64 letters"),
        ([llm(identifier="a|b")], "steps[0].identifier", "give 1 to 64 characters"),
        ([{"type": "human", "question": "?", "agentType": "a"}], "steps[0].identifier", "missing"),
        ([{"type": "wait", "seconds": 0}], "steps[0].seconds", "greater than 0"),
    ],
)  # fmt: skip
def test_an_author_is_told_the_place_and_the_way_out(
    steps: list[dict[str, Any]], path: str, said: str
) -> None:
    error = wrong(*steps)
    assert (error.file, error.path) == ("x.json", path)
    assert said in error.message


def test_the_seeds_own_form_is_a_flow() -> None:
    steps: list[Any] = [
        {"type": "startLoop", "label": "outer"},
        {"type": "llm", "agentType": "planning_agent", "identifier": "main",
         "messages": [{"role": "user", "content": ["Plan.", "Then stop."]}]},
        {"type": "break", "agentType": "planning_agent", "identifier": "main",
         "question": "Done?", "breakOn": "yes"},
        {"type": "endLoop"},
    ]  # fmt: skip
    assert len(flow_in({"steps": steps}, "x.json").steps) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "it is not valid JSON"),
        ("[]", "^x.json: it is \\[\\]; give an object$"),
        ('"steps"', 'it is "steps"; give an object'),
        ('{"steps": [3]}', "steps\\[0\\]: it is 3; give an object"),
        ('{"steps": 3}', "steps: it is 3; give a list"),
        ("{}", "steps: it is missing"),
        (b"\xff\xfe", "it is not UTF-8"),
    ],
)
def test_a_file_that_is_no_flow_says_so(tmp_path: Path, text: Any, said: str) -> None:
    file = tmp_path / "x.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FlowInvalid, match=said) as error:
        read_flow(file)
    assert str(error.value).startswith("x.json: ")


def test_a_command_is_a_list_of_messages_or_one_text(tmp_path: Path) -> None:
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/plan.md").write_text("Plan it.\nTwice.\n")
    items = {"Description": "d", "items": [{"type": "message", "role": "user", "content": ["a"]}]}
    (tmp_path / "commands/old.json").write_text(json.dumps(items))
    (tmp_path / "commands/bad.json").write_text('{"messages": [{"role": "robot"}]}')
    flows = tmp_path / "flows"
    plan = read_command(flows, "plan")
    assert plan is not None
    assert plan[0].content == ("Plan it.\nTwice.",)
    old = read_command(flows, "old")
    assert old is not None
    assert [m.content for m in old] == [("a",)]
    assert read_command(flows, "absent") is None
    with pytest.raises(FlowInvalid, match=r"commands/bad.json: messages\[0\].role"):
        read_command(flows, "bad")


@pytest.mark.parametrize("file", sorted((ROOT / "examples/flows/flows").glob("*.json")))
def test_every_example_is_a_flow(file: Path) -> None:
    assert read_flow(file).steps


def test_what_a_tool_is_given_may_ask_for_inputs_of_the_flow_only() -> None:
    tool = {"type": "tool", "tool": "echo", "arguments": {"a": ["x", {"b": "${inputs.nothing}"}]}}
    found = wrong(tool, inputs={"what": "tests"})
    assert found.path == "steps[0].arguments.a[1].b"
    assert "'nothing'" in found.message


@pytest.mark.parametrize(
    "name", ["two words", "os.path:join", "text:_own", "_own:slug", "a:b:c", "é:b"]
)
def test_a_malformed_name_of_a_tool_is_refused(name: str) -> None:
    found = wrong({"type": "tool", "tool": name})
    assert found.path == "steps[0].tool"
    assert "give 'module:function', " in found.message


def test_an_agent_is_told_messages_or_a_file() -> None:
    who = {"type": "llm", "agentType": "a", "identifier": "i"}
    assert flow_in({"steps": [{**who, "markdownFile": "prompts/a-1.md"}]}, "x.json").steps
    neither, both = wrong(who), wrong(llm(markdownFile="a.md"))
    assert (neither.path, "messages or a markdownFile" in neither.message) == (
        "steps[0].messages", True,
    )  # fmt: skip
    assert (both.path, "given too" in both.message) == ("steps[0].markdownFile", True)


@pytest.mark.parametrize(
    "path", ["../a.md", "/etc/a.md", "a.txt", "x/../a.md", ".a.md", "x//a.md", "a\\b.md"]
)
def test_a_file_lies_beneath_the_folder_of_the_flows(path: str) -> None:
    found = wrong({"type": "llm", "agentType": "a", "identifier": "i", "markdownFile": path})
    assert found.path == "steps[0].markdownFile"
    assert "a .md file beneath the folder of the flows" in found.message


def test_a_files_lines_that_are_references_stand_alone(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("# Review\n\nthis:\n  ${steps.write}\n\nthen\n  stop\n")
    said = read_markdown(tmp_path, "a.md")
    assert said is not None
    assert said[0].content == ("# Review\n\nthis:", "${steps.write}", "then\n  stop")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (" \n", "a.md: it is empty"),
        ("x" * 200_001, "a.md: it is too long"),
        (b"\xff", "a.md: it is not UTF-8"),
    ],
)
def test_a_file_that_says_nothing_usable_is_refused(tmp_path: Path, text: Any, why: str) -> None:
    (tmp_path / "a.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FlowInvalid, match=why):
        read_markdown(tmp_path, "a.md")


def test_each_tool_of_our_own_may_be_named() -> None:
    assert TOOLS.keys() == BUILT_IN_TOOLS


def test_a_byte_order_mark_before_a_file_is_no_part_of_it(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    step = {"type": "llm", "agentType": "a", "identifier": "b", "markdownFile": "said.md"}
    (flows / "x.json").write_text(json.dumps({"steps": [step]}), encoding="utf-8-sig")
    (flows / "said.md").write_text("Go on.", encoding="utf-8-sig")
    assert len(read_flow(flows / "x.json").steps) == 1
    said = read_markdown(flows, "said.md")
    assert said is not None
    assert said[0].content == ("Go on.",)


def test_a_form_that_a_text_must_have_is_told_in_words() -> None:
    step: dict[str, Any] = {"type": "llm", "agentType": "a b", "identifier": "x|y"}
    step["messages"] = [{"role": "user", "content": ["Go on."]}]
    with pytest.raises(FlowInvalid) as caught:
        flow_in({"steps": [step]}, "x.json")
    words = "1 to 64 letters, digits, '_', '.' and '-', with a letter or digit first"
    assert caught.value.detail == f'steps[0].agentType: it is "a b"; give {words}'
    with pytest.raises(FlowInvalid, match="give 1 to 64 characters without"):
        flow_in({"steps": [{**step, "agentType": "a"}]}, "x.json")
