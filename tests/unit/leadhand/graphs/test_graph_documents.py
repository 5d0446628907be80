"""Graph documents: all errors at once, each with its place and the fix."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from leadhand.flows.documents import FlowDocument
from leadhand.flows.faults import faults_of, faults_of_graph
from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.faults import GraphMalformed


def faults(*steps: dict[str, Any], **more: Any) -> list[str]:
    """The errors of a graph; each step without a tool or a session gets `echo`."""
    given = [step if "session" in step else {"tool": "echo", **step} for step in steps]
    with pytest.raises(ValidationError) as refused:
        GraphDocument.model_validate({"steps": given, **more})
    (error,) = refused.value.errors()
    cause = error["ctx"]["error"]
    assert isinstance(cause, GraphMalformed)
    return [str(fault) for fault in cause.faults]


def test_all_errors_are_found_at_once() -> None:
    found = faults(
        {"name": "search", "arguments": {"a": ["${saerch.x}", {"b": "${inputs.topik} ${item}"}]}},
        {"name": "search", "depends_on": ["fetch", "search"], "when": "yes"},
        {"name": "loop", "for_each": "${search} and more", "arguments": {"x": "${loop}${"}},
        inputs={"topic": "x"},
    )
    assert [one.partition("; ")[0] for one in found] == [
        "steps[1].name: it is 'search': steps[0] has this name, too",
        "steps[0].arguments.a[0]: it is '${saerch.x}': there is no step 'saerch'",
        "steps[0].arguments.a[1].b: it is '${inputs.topik}': there is no input 'topik'",
        "steps[0].arguments.a[1].b: it is '${item}': ${item} is known only in a step with for_each",
        "steps[1].depends_on[0]: it is 'fetch': there is no such step",
        "steps[1].depends_on[1]: it is 'search': the step would wait for itself",
        "steps[1].when: it is 'yes': it is not a condition",
        "steps[2].for_each: it is '${search} and more': it is not a list",
        "steps[2].arguments.x: it is '${': a reference begins with the name of a step or an input",
    ]
    assert found[1].endswith("did you mean 'search', or write $${ for a literal ${")
    assert found[2].endswith("did you mean 'topic'?")


def test_values_of_inputs_without_what_a_step_needs_are_errors() -> None:
    found = faults(
        {"name": "a", "for_each": "${inputs.text}", "arguments": {"x": "${inputs.found.title}"}},
        {"name": "b", "for_each": "${inputs.found.urls}", "when": "${inputs.found.is_new}"},
        {"name": "c", "for_each": "${inputs.later}", "arguments": {"x": "${inputs.later.y}"}},
        {"name": "d", "arguments": {"x": '${inputs.found.title ?? "none"}'}},
        inputs={"text": "a, b", "found": {"urls": ["u"]}, "later": None},
    )
    assert [one.partition("; ")[0] for one in found] == [
        "steps[0].for_each: it is '${inputs.text}': it is not a list",
        "steps[0].arguments.x: it is '${inputs.found.title}': it has no 'title'",
        "steps[1].when: it is '${inputs.found.is_new}': it has no 'is_new'",
    ]


def test_a_circle_is_an_error_beside_others() -> None:
    found = faults(
        {"name": "a", "arguments": {"x": "${b} ${nothing}"}},
        {"name": "b", "depends_on": ["a", "c"]},
    )
    assert [one.partition("; ")[0] for one in found] == [
        "steps[0].arguments.x: it is '${nothing}': there is no step 'nothing'",
        "steps[1].depends_on[1]: it is 'c': there is no such step",
        "steps[0]: steps wait for each other: a -> b -> a",
    ]


def test_limits_that_a_step_cannot_have_are_errors() -> None:
    found = faults(
        {"name": "a", "at_once": 2, "join": "all", "retry_on": ["OSError"]},
        {"name": "b", "join": "any", "depends_on": ["a"], "for_each": [1], "at_once": 1},
    )
    assert found == [
        "steps[0].at_once: it is '2': the step has no for_each; add for_each, or leave it out",
        "steps[0].join: it is 'all': the step waits for no other; name steps in depends_on, or "
        "leave it out",
        "steps[0].retry_on: the step has no retries; give `retries`, or leave it out",
    ]


def test_fields_without_effect_on_an_agent_or_a_flow_are_errors() -> None:
    assert faults(
        {"name": "a", "tool": "flow:review", "retries": 2, "expect": "success"},
        {"name": "b", "tool": "agent:claude", "retries": 2, "expect": "success"},
        {"name": "c", "tool": "flow:review", "timeout_s": 5},
    ) == [
        "steps[0].retries: it is '2': a flow is not run again; give the flow more `attempts`, or "
        "leave it out",
        "steps[0].expect: it is 'success': the result of a tool flow:NAME has no `success`; give "
        "it to a tool that returns an object, or leave it out",
        "steps[1].expect: it is 'success': the result of a tool agent:NAME has no `success`; give "
        "it to a tool that returns an object, or leave it out",
    ]


LOOP = {"kind": "loop", "task": "Mend ${find.file}", "checkers": ["test -z ${x}", "agent: ${y}?"]}


def test_references_count_in_the_texts_for_agents_of_a_session_and_not_in_its_commands() -> None:
    found = faults({"name": "mend", "session": LOOP})
    assert [one.partition(":")[0] for one in found] == [
        "steps[0].session.task",
        "steps[0].session.checkers[1].prompt",
    ]
    phases = [{**LOOP, "name": "first", "task": "${item}"}]
    del phases[0]["kind"]
    found = faults({"name": "w", "session": {"kind": "workflow", "name": "w", "phases": phases}})
    assert found[0].startswith("steps[0].session.phases[0].task: it is '${item}': ${item} is known")


@pytest.mark.parametrize(
    ("step", "why"),
    [
        ({}, "give exactly one of tool, session"),
        ({"tool": "echo", "session": LOOP}, "give exactly one of tool, session"),
        ({"session": LOOP, "arguments": {"a": 1}}, "write references in the tasks of the session"),
        ({"session": LOOP, "retries": 2}, "give the session more iterations"),
        ({"session": LOOP, "expect": "success"}, "the checkers of the session judge its work"),
        ({"session": {**LOOP, "cwd": "/"}}, "cwd is that of the graph"),
        ({"session": {**LOOP, "env": {"A": "b"}}}, "env is that of the graph"),
        ({"session": {**LOOP, "kind": "plan"}}, "'loop', 'workflow'"),
        ({"session": {"task": "t"}}, "'kind'"),
    ],
)
def test_step_that_calls_no_tool_or_an_impossible_session_is_refused(
    step: dict[str, Any], why: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        GraphDocument.model_validate({"steps": [{"name": "a", **step}]})
    assert why in refused.value.errors()[0]["msg"]


def test_step_with_a_session_survives_a_dump_with_all_defaults() -> None:
    document = GraphDocument.model_validate(
        {"steps": [{"name": "a", "session": {**LOOP, "task": "t", "checkers": ["true"]}}]}
    )
    dumped = document.model_dump(mode="json")
    assert GraphDocument.model_validate(dumped).model_dump(mode="json") == dumped


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "topic": {"type": "string", "minLength": 2},
        "limit": {"type": "integer", "minimum": 1, "default": 3},
        "since": {"type": ["integer", "null"]},
    },
    "additionalProperties": False,
}


def test_inputs_that_do_not_fit_their_schema_are_errors_with_their_places() -> None:
    found = faults(
        {"name": "a", "arguments": {"x": "${b}"}},
        inputs={"topic": "x", "limit": 0, "other": 1},
        input_schema=SCHEMA,
    )
    assert [one.partition("; ")[0] for one in found] == [
        "inputs.topic: it should have at least 2 characters",
        "inputs.limit: it should be greater than or equal to 1",
        "inputs.other: the schema has no such input",
        "steps[0].arguments.x: it is '${b}': there is no step 'b'",
    ]


@pytest.mark.parametrize(("schema", "path"), [
    ({"type": "array"}, "input_schema.type"),
    ({"properties": {"a": {"type": "int"}}}, "input_schema.properties.a.type"),
    ({"properties": {"a": {"pattern": "(?=a)"}}}, "input_schema.properties.a.pattern"),
    ({"properties": {"a": {"pattern": "((a{99}){99}){9}"}}}, "input_schema.properties.a.pattern"),
    ({"properties": {"a": {"$ref": "http://x"}}}, "input_schema.properties.a.$ref"),
    ({"properties": {"a": {"items": {"minimum": "1"}}}}, "input_schema.properties.a.items.minimum"),
    ({"properties": {"a": 1}}, "input_schema.properties.a"),
    ({"properties": {"a": {"oneOf": []}}}, "input_schema.properties.a.oneOf"),
    ({"properties": {"a": {"anyOf": {}}}}, "input_schema.properties.a.anyOf"),
    ({"properties": {"a": {"allOf": "x"}}}, "input_schema.properties.a.allOf"),
    ({"properties": {"a": {"type": [{"a": n} for n in range(9_000)]}}},
     "input_schema.properties.a.type"),
    ({"properties": {"a": {"required": [[n] for n in range(9_000)]}}},
     "input_schema.properties.a.required"),
    ({"properties": 1}, "input_schema.properties"),
])  # fmt: skip
def test_a_schema_with_an_error_is_refused_at_its_place(schema, path) -> None:
    (first, *_) = faults({"name": "a"}, input_schema=schema)
    assert first.startswith(f"{path}: ")


def test_a_schema_declares_inputs_with_their_defaults() -> None:
    steps = [{"name": "a", "tool": "echo", "arguments": {"x": "${inputs.limit} ${inputs.since}"}}]
    given = {"steps": steps, "inputs": {"topic": "agents"}, "input_schema": SCHEMA}
    document = GraphDocument.model_validate(given)
    assert document.inputs == {"topic": "agents", "limit": 3, "since": None}


@pytest.mark.parametrize("name", ["exit 0", "exit 256", "http 600", "time out", "value-error", ""])
def test_a_name_that_is_no_error_is_refused(name: str) -> None:
    step = {"name": "a", "tool": "echo", "retries": 1, "retry_on": [name]}
    with pytest.raises(ValidationError, match="it is not an error"):
        GraphDocument.model_validate({"steps": [step]})


def test_each_circle_is_named_once_with_its_steps_in_order() -> None:
    found = faults(
        {"name": "a", "arguments": {"x": "${b}"}},
        {"name": "b", "depends_on": ["c"]},
        {"name": "c", "when": "${a}"},
        {"name": "d", "for_each": "${e}"},
        {"name": "e", "depends_on": ["d"]},
        {"name": "after", "depends_on": ["a"]},
    )
    assert [one.partition("; ")[0] for one in found] == [
        "steps[0]: steps wait for each other: a -> b -> c -> a",
        "steps[3]: steps wait for each other: d -> e -> d",
    ]


@pytest.mark.parametrize(
    ("step", "field"),
    [
        ({"name": ""}, "name"), ({"name": "a", "tool": "flow.forget"}, "tool"),
        ({"name": "a", "tool": "no name"}, "tool"), ({"name": "a", "retries": -1}, "retries"),
        ({"name": "a", "timeout_s": True}, "timeout_s"),
        ({"name": "a", "argument": {}}, "argument"),
        ({"name": "a", "for_each": 3}, "for_each"),
    ],
)  # fmt: skip
def test_a_step_with_an_invalid_field_is_refused(step: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        GraphDocument.model_validate({"steps": [{"tool": "echo", **step}]})
    assert refused.value.errors()[0]["loc"][:3] == ("steps", 0, field)


def test_the_strings_of_arguments_keep_their_spaces() -> None:
    step = {"name": " a ", "tool": "echo", "arguments": {"x": " y "}}
    (parsed,) = GraphDocument.model_validate({"steps": [step]}).steps
    assert (parsed.name, parsed.arguments) == ("a", {"x": " y "})


def test_name_with_a_space_is_written_in_brackets() -> None:
    [found] = faults(
        {"name": "fetch papers"}, {"name": "b", "arguments": {"x": "${fetch papers.x}"}}
    )
    assert found.endswith('; write ${steps["fetch papers"]...} for this step')


@pytest.mark.parametrize("model", [GraphDocument, FlowDocument])
def test_list_of_a_wrong_type_has_one_plain_error(model: Any) -> None:
    name = "for_each" if model is GraphDocument else "forEach"
    step = {"tool": "echo", name: {"x": 1}}
    step |= {"name": "a"} if model is GraphDocument else {"type": "tool"}
    given: dict[str, Any] = {"name": "x", "steps": [step]}
    with pytest.raises(ValidationError) as refused:
        model.model_validate(given)
    assert faults_of(refused.value, given, model) == [
        (f"steps[0].{name}", "it is not a list; give a list, or one reference to a list")
    ]


def paths(given: Any) -> list[str]:
    """The paths of all errors of a document."""
    with pytest.raises(ValidationError) as refused:
        GraphDocument.model_validate(given)
    return [path for path, _ in faults_of_graph(refused.value, given)]


ECHO = {"name": "a", "tool": "echo"}


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([], [""]), ({}, ["steps"]), ({"steps": 3, "label": 7}, ["steps", "label"]),
        ({"steps": [3, {**ECHO, "depends_on": ["b"]}]}, ["steps[0]"]),
        ({"steps": [{**ECHO, "arguments": {"x": "${b}"}}], "inputs": {"1": 3}}, ["inputs.1"]),
        ({"steps": [{**ECHO, "at_once": 0, "for_each": "${b}"}]}, ["steps[0].at_once"]),
        (
            {"steps": [{**ECHO, "session": {"kind": "loop", "checkers": 3}}, ECHO]},
            ["steps[0].session.task", "steps[0].session.checkers"],
        ),
        ({"steps": [ECHO], "budget": {"steps": -1}, "other": 1}, ["budget.steps", "other"]),
    ],
)  # fmt: skip
def test_errors_of_fields_come_before_those_of_the_structure(given: Any, found: list[str]) -> None:
    assert paths(given) == found
