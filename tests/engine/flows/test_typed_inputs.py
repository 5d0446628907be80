"""Inputs of flows with a JSON Schema: their values keep their types, and unfit ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue, ValidationError

from app.core.program import Program, Step
from app.engine import Engine
from app.errors import InvalidDocument
from app.fleet.flow_tools import flow_tool
from leadhand.flows.documents import FlowDocument, FlowRun
from tests.engine.driving import Bench
from tests.engine.world import World
from tests.flows import flow, llm

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
        "deep": {"type": "boolean", "default": False},
        "topic": {"type": "string", "default": "queues"},
    },
}
ARGUMENTS = {
    "count": "${inputs.count}", "tags": "${inputs.tags}", "deep": "${inputs.deep}",
    "text": "${inputs.count} of ${inputs.topic}", "topic": "${inputs.topic}",
}  # fmt: skip
CALL = {"type": "tool", "tool": "echo", "arguments": ARGUMENTS}
EACH = {"type": "tool", "tool": "echo", "forEach": "${inputs.tags}", "arguments": {"x": "${item}"}}
FILE = {"inputSchema": SCHEMA, "steps": [CALL]}


def steps_of(engine: Engine, session: str) -> list[Step]:
    ref = engine.queries.ref(session)
    program: Program = engine.registry.program(engine.store.fields(ref)["program"])
    return [node for _, node in program.walk() if isinstance(node, Step)]


def arguments_of(engine: Engine, session: str) -> JsonValue:
    return steps_of(engine, session)[0].inputs["arguments"]


@pytest.fixture
def engine(bench: Bench, tmp_path: Path) -> Engine:
    engine = World.of(bench).engine
    engine.catalog.folders = (tmp_path,)
    return engine


@pytest.mark.parametrize(("count", "tags"), [(3, ["a", "b"]), ("3", '["a", "b"]')])
def test_values_keep_their_types_in_arguments(engine: Engine, count: Any, tags: Any) -> None:
    document = flow(CALL, EACH, inputs={"count": count, "tags": tags}, inputSchema=SCHEMA)
    assert document.inputs == {
        "count": "3", "tags": '["a", "b"]', "deep": "false", "topic": "queues",
    }  # fmt: skip
    session = engine.submit.document(document).session
    assert arguments_of(engine, session) == {
        "count": 3, "tags": ["a", "b"], "deep": False, "text": "3 of queues", "topic": "queues",
    }  # fmt: skip
    again = FlowDocument.model_validate_json(document.model_dump_json())
    assert again.inputs == document.inputs


def test_texts_for_agents_have_the_json_of_a_value() -> None:
    step = llm("Use ${inputs.tags} ${inputs.count} times")
    document = flow(step, inputs={"count": 2}, inputSchema=SCHEMA)
    assert document.inputs["tags"] == '["new"]'


@pytest.mark.parametrize(
    ("inputs", "schema", "path"),
    [
        ({"count": 0}, SCHEMA, "inputs.count"),
        ({"count": "many"}, SCHEMA, "inputs.count"),
        ({"count": 1, "tags": ["a", 2]}, SCHEMA, "inputs.tags[1]"),
        ({"count": 1}, {**SCHEMA, "properties": {"count": {"typ": "integer"}}}, "inputSchema"),
    ],
)
def test_unfit_values_are_refused_at_their_place(inputs: Any, schema: Any, path: str) -> None:
    with pytest.raises(ValidationError, match=path.replace("[", r"\[")):
        flow(CALL, inputs=inputs, inputSchema=schema)


def test_value_of_an_input_without_a_type_is_a_text() -> None:
    with pytest.raises(ValidationError, match=r"inputs\.n"):
        flow(llm("${inputs.n}"), inputs={"n": 5})


def written(engine: Engine, content: Any) -> None:
    (engine.catalog.folders[0] / "many.json").write_text(json.dumps(content))


@pytest.mark.parametrize("count", [4, "4"])
def test_a_run_of_a_file_takes_values_and_texts(engine: Engine, count: Any) -> None:
    written(engine, FILE)
    made = engine.submit.flow("many", FlowRun(inputs={"count": count, "tags": ["x"]}))
    found = arguments_of(engine, made.session)
    assert isinstance(found, dict)
    assert (found["count"], found["tags"]) == (4, ["x"])


@pytest.mark.parametrize(
    ("inputs", "field", "hint"),
    [
        ({"count": "many"}, "inputs.count", "it should be a whole number"),
        ({"count": 1.5}, "inputs.count", "it should be a whole number"),
        ({"count": 1, "other": 2}, "inputs.other", "no such input"),
        ({"tags": []}, "inputs.count", "no default"),
    ],
)
def test_a_run_with_unfit_values_is_refused(
    engine: Engine, inputs: Any, field: str, hint: str
) -> None:
    written(engine, FILE)
    with pytest.raises(InvalidDocument, match=hint) as refused:
        engine.submit.flow("many", FlowRun(inputs=inputs))
    assert refused.value.field == field


def test_a_run_gives_texts_to_a_flow_without_types(engine: Engine) -> None:
    written(engine, {"inputs": {"n": None}, "steps": [{**CALL, "arguments": {"n": "${inputs.n}"}}]})
    with pytest.raises(InvalidDocument, match="declares no type for it; give a text"):
        engine.submit.flow("many", FlowRun(inputs={"n": 5}))
    made = engine.submit.flow("many", FlowRun(inputs={"n": "5"}))
    assert arguments_of(engine, made.session) == {"n": "5"}


def test_a_flow_is_a_tool_with_the_types_of_its_inputs(engine: Engine) -> None:
    written(engine, FILE)
    [view] = engine.catalog.flows()
    schema = flow_tool(view).input_schema
    assert schema is not None
    assert schema["required"] == ["count"]
    assert schema["properties"] == {
        "count": {"type": "integer", "minimum": 1},
        "tags": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
        "deep": {"type": "boolean", "default": False},
        "topic": {"type": "string", "default": "queues"},
    }
