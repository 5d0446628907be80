"""All errors of a flow are reported at once, each with its path."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from app.fleet.flow_catalog import Catalog
from leadhand.flows.documents import FlowDefinition, FlowDocument
from leadhand.flows.faults import all_faults
from leadhand.flows.file_reading import FlowInvalid, faults_in_file
from tests.flows import ask, llm, loop


def found(*steps: Any, **more: Any) -> list[tuple[str, str]]:
    return all_faults(FlowDocument, {"steps": list(steps), **more}).faults


def paths(*steps: Any, **more: Any) -> list[str]:
    return [path for path, _ in found(*steps, **more)]


def test_nothing_is_wrong_with_what_is_right() -> None:
    told = all_faults(FlowDefinition, {"steps": [llm(label="a"), loop(llm("${steps.a}"), ask())]})
    assert told.faults == []
    assert told.flow is not None


def test_errors_of_fields_come_before_those_of_the_structure() -> None:
    structure = [
        ask(),
        {"type": "endLoop"},
        loop(llm("${steps.gone}")),
        llm("${inputs.nothing}"),
        {"type": "startLoop"},
    ]
    fields = [llm(identifier=5, label="a"), {"type": "frob"}, loop(llm(), maxIterations=0)]
    assert paths(*fields, *structure, colour="red") == [
        "steps[0].identifier", "steps[1]", "steps[2].maxIterations", "colour",
    ]  # fmt: skip
    inner = {"inner": {"steps": [ask(), llm(surprise=1)]}}
    assert paths(*structure, flows=inner) == ["flows.inner.steps[1].surprise"]
    inner["inner"]["steps"].pop()
    assert paths(*structure, flows=inner) == [
        "steps[1]", "steps[4]", "steps[0]", "steps[2].steps[0].messages[0].content[0]",
        "steps[3].messages[0].content[0]", "flows.inner.steps[0]",
    ]  # fmt: skip


def test_each_fault_says_the_way_out() -> None:
    assert dict(found(ask()))["steps[0]"].endswith("move it into a loop, or remove it")
    assert dict(found(llm(messages=[])))["steps[0].messages"] == "it is empty; give at least one"


def test_a_list_is_not_said_to_be_empty_for_what_is_wrong_within_it() -> None:
    wrong = llm(messages=[{"role": "assistant", "content": [7]}])
    assert paths(wrong) == ["steps[0].messages[0].role", "steps[0].messages[0].content[0]"]
    assert paths(llm(messages=[{"role": "user", "content": []}])) == [
        "steps[0].messages[0].content"
    ]


@pytest.mark.parametrize("value", ["true", 1, 0, "no", None])
@pytest.mark.parametrize(
    "step",
    [
        {"type": "tool", "tool": "noop", "quick": ...},
        {"type": "tool", "tool": "noop", "continueOnFailure": ...},
    ],
)
def test_a_switch_must_be_true_or_false(step: dict[str, Any], value: Any) -> None:
    name = next(name for name in step if step[name] is ...)
    found = all_faults(FlowDefinition, {"steps": [{**step, name: value}]})
    fix = f"it is {json.dumps(value)}; give true or false, without quotation marks"
    assert found.faults == [(f"steps[0].{name}", fix)]


def test_limits_are_told_in_plain_words() -> None:
    ((path, told),) = found(*[{"type": "wait", "seconds": 1}] * 1001)
    assert (path, told.endswith("; it should have at most 1000 items")) == ("steps", True)
    assert dict(found(llm(), inputs={"a-b": "x"})).keys() == {"inputs.a-b"}


CHECK = {"type": "check", "checker": {"prompt": "is it good for ${inputs.nobody}?"}}


@pytest.mark.parametrize(
    ("step", "where", "why"),
    [
        (llm("Review: ${steps.c}"), "messages[0].content[0]", "label 'c' is not visible"),
        (llm("Review:\n${steps.c}\nnow"), "messages[0].content[0]", "is not visible here"),
        (llm("${steps.a{b}}"), "messages[0].content[0]", "a label without braces"),
        (llm("see ${steps.nobody"), "messages[0].content[0]", "literally"),
        (llm("${inputs.{x}}"), "messages[0].content[0]", "is not an input reference"),
        (CHECK, "checker", "it uses the input 'nobody'"),
        ({"type": "check", "checker": "agent: as ${steps.c} says"}, "checker", "is not visible"),
        ({"type": "human", "question": "Is ${steps.c} good?"}, "question", "is not visible"),
        ({"type": "tool", "tool": "echo", "arguments": {"x": [" a ${steps.c}"]}},
         "arguments.x[0]", "is not visible here"),
        (llm(working_folder="${inputs.q}"), "working_folder", "is not replaced in this field"),
        (llm(identifier="${steps.a}"), "identifier", "is not replaced in this field"),
        (llm(model="${inputs.q}"), "model", "is not replaced in this field"),
    ],
)  # fmt: skip
def test_no_reference_is_passed_on_as_it_is(step: Any, where: str, why: str) -> None:
    told = found(llm(label="a"), llm(label="a{b}"), step, inputs={"q": "x"})
    assert [path for path, _ in told] == [f"steps[2].{where}"]
    assert why in told[0][1]


def test_words_that_only_look_like_a_reference_are_right() -> None:
    said = ["as $${steps.a}", "$${steps.nobody}", "$${inputs.x}", "${HOME}", "${step.a} $$ ${"]
    step = llm(messages=[{"role": "user", "content": said}])
    checker = {"type": "check", "checker": "echo ${inputs.x} ${steps.y}"}
    assert found(llm(label="a"), step, checker) == []


WHOLE: dict[str, Any] = {
    "inputs": {"a": "x"}, "agents": {"*": "c"}, "budget": {"steps": 4},
    "flows": {"inner": {"steps": [llm(), loop(ask())]}},
    "commands": {"c": [{"role": "user", "content": ["x"]}]},
    "steps": [
        llm("${inputs.a}", label="w"), {"type": "startLoop"}, llm("${steps.w}"), ask(),
        {"type": "endLoop"},
        loop(loop(ask(), {"type": "if", "command": "true", "then": [llm()], "else": [llm()]})),
        {"type": "tool", "tool": "echo", "arguments": {"a": [1, {"b": "${steps.w}"}]}},
        {"type": "check", "checker": "pytest"}, {"type": "subflow", "flowNames": ["inner"]},
        {"type": "human", "question": "q"}, {"type": "wait", "seconds": 3},
    ],
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in inside:
        yield (*path, key)
        if isinstance(item, dict | list):
            yield from places(item, (*path, key))


JUNK: st.SearchStrategy[Any] = st.sampled_from([
    None, True, -1, "", "x", [], {}, [{}], {"type": "startLoop"}, {"type": "endLoop"},
    {"type": "break"}, "${steps.q}", "${inputs.q}", [llm(surprise=1)],
])  # fmt: skip


@given(st.lists(st.tuples(st.sampled_from([*places(WHOLE)]), JUNK, st.booleans()), max_size=5))
def test_whatever_is_wrong_something_is_told_and_nothing_is_where_nothing_is(
    changes: list[tuple[tuple[Any, ...], Any, bool]],
) -> None:
    flow = copy.deepcopy(WHOLE)
    for path, value, stays in changes:
        here: Any = flow
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for part in path[:-1]:
                here = here[part]
            here[path[-1]] = copy.deepcopy(value)
            if not stays:
                del here[path[-1]]
    before = copy.deepcopy(flow)
    told = all_faults(FlowDocument, flow)
    assert flow == before
    try:
        FlowDocument.model_validate(flow)
    except ValidationError:
        assert told.faults
    else:
        assert not told.faults


@pytest.mark.parametrize("flow", [[], None, "x", {"steps": {}}, {"steps": [1, None, []]}, {}])
def test_what_is_no_flow_at_all_is_told_too(flow: Any) -> None:
    assert all_faults(FlowDefinition, flow).faults


def test_a_file_is_checked_with_those_beside_it(tmp_path: Path) -> None:
    flows = tmp_path / "flows"
    flows.mkdir()
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands/c.md").write_text("Do ${inputs.x}")
    (flows / "broken.json").write_text("{}")
    who = {"agentType": "a", "identifier": "i"}
    steps = [
        {"type": "command", **who, "commandName": "c"},
        {"type": "command", **who, "commandName": "gone"},
        {"type": "llm", **who, "markdownFile": "gone.md"},
        {"type": "subflow", "flowNames": ["broken", "absent"]},
        ask(),
    ]
    (flows / "x.json").write_text(json.dumps({"steps": steps}))
    told = [f"{path}: {message}" for path, message in faults_in_file(flows / "x.json").faults]
    assert [one[:58] for one in told] == [
        "steps[4]: break is used outside a loop; move it into a loo",
        "steps[1].commandName: commands/gone.json or .md is missing",
        "steps[2].markdownFile: gone.md is missing in the folder of",
        "steps[3].flowNames: it is disabled: broken.json: steps: it",
        "steps[3].flowNames: the flow 'absent' is missing; create a",
        "commands/c: messages[0].content[0]: it uses the input 'x',",
    ]
    (flows / "x.json").write_text("{")
    with pytest.raises(FlowInvalid, match="not valid JSON"):
        faults_in_file(flows / "x.json")


def test_subflows_are_given_what_they_need_and_no_more(tmp_path: Path) -> None:
    def runs(name: str, **inputs: str) -> dict[str, Any]:
        return {"type": "subflow", "flowNames": [name], "inputs": inputs}

    given: dict[str, Any] = {"a": None, "b": "x"}
    for name, said in {
        "inner": {"steps": [llm()], "inputs": given},
        "outer": {"steps": [runs("inner")]},
        "x": {"steps": [runs("outer"), loop(runs("inner", a="1", c="2"), ask())]},
    }.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
    told = ["outer: steps[0].inputs.a: 'inner' requires this input; add it",
            "steps[1].steps[0].inputs.c: 'inner' has the inputs: a, b"]  # fmt: skip
    found = faults_in_file(tmp_path / "x.json").faults
    assert sorted(f"{path}: {message}" for path, message in found) == told
    flow = Catalog((tmp_path,)).flow("outer")
    assert (flow.disabled, "requires this input" in str(flow.error)) == (True, True)


@pytest.mark.parametrize("name", ["my flow", "validate", "-x"])
def test_a_file_that_no_flow_can_be_called_after_is_told(tmp_path: Path, name: str) -> None:
    file = tmp_path / f"{name}.json"
    file.write_text(json.dumps({"steps": [llm()]}))
    ((path, message),) = faults_in_file(file).faults
    assert (path, message.startswith("a flow's name has letters")) == ("", True)


@pytest.mark.parametrize(
    ("steps", "told"),
    [
        ([], "steps: the flow has no steps; add at least one"),
        ([{"type": "subflow", "flowNames": ["x"]}],
         "steps[0].flowNames: the flows call each other in a circle: x -> x; remove one call"),
        ([{"type": "subflow", "flowNames": ["back"]}],
         "back: steps[0].flowNames: the flows call each other in a circle: x -> back -> x; "
         "remove one call"),
        ([{"type": "subflow", "flowNames": ["lacking"]}],
         "lacking: steps[0].markdownFile: gone.md is missing in the folder of the flow; "
         "create it"),
    ],
)  # fmt: skip
def test_what_cannot_be_run_is_told_before_it_is(tmp_path: Path, steps: Any, told: str) -> None:
    llm_of_file = {"type": "llm", "agentType": "a", "identifier": "i", "markdownFile": "gone.md"}
    flows = {
        "x": steps,
        "back": [{"type": "subflow", "flowNames": ["x"]}],
        "lacking": [llm_of_file],
    }
    for name, written in flows.items():
        (tmp_path / f"{name}.json").write_text(json.dumps({"steps": written}))
    assert [f"{at}: {said}" for at, said in faults_in_file(tmp_path / "x.json").faults] == [told]


@pytest.mark.parametrize(
    "text",
    ['{"steps": [1], "steps": []}', '{"steps": [{"type": "wait", "label": "a", "label": "b"}]}'],
)
def test_a_name_that_is_given_twice_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(FlowInvalid, match=r"has the key '(steps|label)' twice.*give each key once"):
        faults_in_file(tmp_path / "x.json")


def test_a_misspelt_key_suggests_the_known_one() -> None:
    misspelt = dict(
        found(
            {**llm(), "agentTyp": "a"},
            loop(llm(message=[]), maxIteration=3),
            {"type": "check", "checker": {"prompts": "ok?", "command": "true"}},
            stepz=[],
            flows={"inner": {"steps": [llm(agent_type="a")]}},
        )
    )
    suggested = {path: message.partition("; ")[2] for path, message in misspelt.items()}
    assert suggested["steps[0].agentTyp"] == "did you mean agentType?"
    assert suggested["steps[1].maxIteration"] == "did you mean maxIterations?"
    assert suggested["steps[1].steps[0].message"] == "did you mean messages?"
    assert suggested["steps[2].checker.prompts"] == "did you mean prompt?"
    assert suggested["flows.inner.steps[0].agent_type"] == "did you mean agentType?"
    assert suggested["stepz"] == "did you mean steps?"


def test_an_unknown_key_like_no_other_gets_no_suggestion() -> None:
    assert dict(found(llm(surprise=1)))["steps[0].surprise"] == (
        "there is no such field; remove it, or correct its name"
    )
