"""The work of validation is in proportion to the document, whatever is wrong with it.

Calls are counted, not the time that they take: a wrong document may cost a few calls for each of
its values, besides a fixed number for the errors that are named.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from difflib import SequenceMatcher
from types import FrameType
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from api.requests import parse_body
from api.sessions import _MODELS
from api.validation_errors import field_problems
from app.compiler import compile_document
from app.errors import InvalidDocument
from leadhand.errors import Refused
from leadhand.flows.documents import AnyDocument, FlowDefinition
from leadhand.flows.faults import all_faults
from leadhand.models.problems import FieldProblem
from leadhand.models.suggestions import nearest_field
from leadhand.models.validation_messages import NAMED

_DOCUMENT: TypeAdapter[AnyDocument] = TypeAdapter(AnyDocument)
#: Calls of functions, of Python and of C, for each value and each reference of a document, and for
#: all of its errors.
A_VALUE, ALL_ERRORS = 80, 2_500_000
#: Comparisons by the order of letters: five for each error that is named, by each of two checks.
COMPARISONS = 2 * 5 * NAMED


def unknown(count: int, of: str = "field") -> dict[str, int]:
    return {f"{of}{number}": 1 for number in range(count)}


def graph(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "graph", "steps": [{"tool": "echo", **step} for step in steps], **fields}


def flow(*steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"kind": "flow", "name": "f", "steps": [*steps], **fields}


def deep(levels: int) -> Any:
    return json.loads("[" * levels + "]" * levels)


def others(number: int, count: int) -> list[str]:
    return [f"s{other}" for other in range(count) if other != number]


def prompt(text: str, **fields: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": [text]}]
    return {"type": "llm", "agentType": "a", "identifier": "x", "messages": messages, **fields}


def typed(schema: dict[str, Any], value: Any) -> dict[str, Any]:
    wanted = {"type": "object", "properties": {"p": schema}}
    return graph({"name": "a"}, input_schema=wanted, inputs={"p": value})


LOOP = {"kind": "loop", "task": "t", "checkers": ["true"]}
PHASE = {"name": "a", "task": "t", "checkers": ["true"]}
PLAN = {"kind": "plan", "request": "r", "checkers": ["true"]}
WAIT = {"type": "wait", "seconds": 1}
MOST_REFERENCES = "at most 20000"

DOCUMENTS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown fields": ({**LOOP, **unknown(20_000)}, "20000 errors"),
    "few unknown fields": ({**LOOP, **unknown(4_000, "task")}, "no such field"),
    "long unknown fields": ({**LOOP, **unknown(40, "n" * 50_000)}, "no such field"),
    "unknown fields of phases": (
        {"kind": "workflow", "name": "w", "phases": [{**PHASE, **unknown(4_000)}]},
        "no such field",
    ),
    "pipes from everywhere": (
        {"kind": "workflow", "name": "w", "phases": [
            {**PHASE, "name": f"a{i}", "pipe_from": [f"a{j}" for j in range(i)]}
            for i in range(200)]},
        "19900 pipes",
    ),
    "an unknown pipe among long names": (
        {"kind": "workflow", "name": "w", "phases": [
            {**PHASE, "name": "a" * 100 + str(i), "pipe_from": ["b" * 100] if i == 999 else []}
            for i in range(1000)]},
        "unknown phase",
    ),
    "steps that depend on each other": (
        graph(*({"name": f"s{i}", "depends_on": others(i, 220)} for i in range(220))),
        "s0 -> s1 -> s0",
    ),
    "far too many dependencies": (
        graph(*({"name": f"s{i}", "depends_on": others(i, 300)} for i in range(300))),
        "89700 names",
    ),
    "steps that refer to each other": (
        graph(*(
            {"name": f"s{i}", "arguments": {"a": "".join(f"${{{o}}}" for o in others(i, 100))}}
            for i in range(100))),
        "s0 -> s1 -> s0",
    ),
    "far too many references": (
        graph(*(
            {"name": f"s{i}", "arguments": {"a": "".join(f"${{{o}}}" for o in others(i, 300))}}
            for i in range(300))),
        MOST_REFERENCES,
    ),
    "unknown steps with long names": (
        graph(*(
            {"name": "s" * 60 + str(i), "arguments": {"a": "${" + "s" * 59 + "z}"}}
            for i in range(250))),
        "there is no step",
    ),
    "unknown inputs among many": (
        graph({"name": "a", "arguments": {"a": ["${inputs.zz}"] * 1_000}},
              inputs=unknown(5_000)),
        "there is no input",
    ),
    "unknown fields of a step": (graph({"name": "a", **unknown(4_000)}), "no such field"),
    "a wide schema": (
        graph({"name": "a"}, input_schema={
            "type": "object",
            "properties": {f"p{i}": {"type": "integer", "zz": 1} for i in range(5_000)}}),
        "too large",
    ),
    "a schema with many choices": (
        typed({"type": "array", "items": {"enum": [*range(10_000)]}}, [-1] * 10_000),
        "too large to be compared",
    ),
    "a schema with many members": (
        typed({"anyOf": [{"type": "integer"}] * 290}, ["x" * 400_000]), "too large to be compared",
    ),
    "values that do not fit a schema": (
        typed({"type": "array", "items": {"type": "string"}}, [1] * 5_000), "should be a text",
    ),
    "a slow pattern": (
        typed({"type": "array", "items": {"pattern": "((a?){60}){60}b"}}, ["a" * 20_000] * 20),
        "too large to be compared",
    ),
    "a deep list": ({**LOOP, "checkers": deep(60)}, "Checker"),
    "a list that is too deep": ({**LOOP, "checkers": deep(100)}, "deeper than 64"),
    "many deep lists": ({**LOOP, "checkers": [deep(50)] * 1_000}, "Checker"),
    "a flow of unknown fields": (flow({**WAIT, **unknown(4_000)}), "no such field"),
    "unknown kinds of steps": (flow(*[{"type": "zz"}] * 1_000), "not known"),
    "a flow of deep loops": (
        flow(*[{"type": "startLoop"}] * 400, WAIT, *[{"type": "endLoop"}] * 400), "nest fewer",
    ),
    "references of a flow": (
        flow(*(prompt("${steps.l0} " * 10, label=f"l{i}") for i in range(900))), "not visible",
    ),
    "far too many references of a flow": (flow(prompt("${steps.zz} " * 15_000),
        prompt("${steps.zz} " * 15_000)), MOST_REFERENCES),
    "references that have no end": (flow(prompt("${steps." * 15_000)), "not a step reference"),
    "unknown inputs of subflows": (
        flow(*(
            {"type": "subflow", "flowNames": ["a"], "inputs": unknown(50)} for _ in range(100)),
            flows={"a": {"steps": [WAIT]}}),
        "it should be a valid string",
    ),
    "tasks that depend on each other": (
        {**PLAN, "tasks": [
            {"id": f"s{i}", "title": "t", "dependencies": others(i, 300)} for i in range(300)]},
        "s0 -> s1 -> s0",
    ),
    "tasks with unknown fields": (
        {**PLAN, "tasks": [{"id": f"t{i}", "title": "t", **unknown(40)} for i in range(100)]},
        "no such field",
    ),
}  # fmt: skip


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """How often each function is called, with those of C."""
    counted = Counter[str]()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            counted[frame.f_code.co_qualname if event == "call" else "C"] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def size(value: Any) -> int:
    inside = value.values() if isinstance(value, dict) else value
    if isinstance(value, dict | list):
        return 1 + sum(map(size, inside))
    return 1 + value.count("${") if isinstance(value, str) else 1


def problems_of(body: bytes) -> tuple[FieldProblem, ...]:
    """All that the API does to say what is wrong with a document."""
    try:
        given = parse_body(body)
    except Refused as refusal:
        return (FieldProblem(field="", message=refusal.problem.detail),)
    assert isinstance(given, dict)
    try:
        document = _DOCUMENT.validate_python(given)
    except ValidationError as error:
        if given["kind"] == "flow":
            all_faults(FlowDefinition, given)
        return field_problems(error, given, _MODELS[str(given["kind"])])
    with pytest.raises(InvalidDocument) as caught:
        compile_document(document)
    return (FieldProblem(field=caught.value.field, message=str(caught.value)),)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_work_is_in_proportion_to_the_document(name: str) -> None:
    document, message = DOCUMENTS[name]
    body, found = json.dumps(document).encode(), list[tuple[FieldProblem, ...]]()
    nearest_field(_MODELS[document["kind"]], ("x",))  # its schema is built once
    calls = calls_of(lambda: found.append(problems_of(body)))
    [problems] = found
    assert any(message in f"{one.message}; {one.hint}" for one in problems), problems[:3]
    assert len(problems) <= NAMED
    assert calls.total() <= ALL_ERRORS + A_VALUE * size(document)
    assert calls[SequenceMatcher.ratio.__qualname__] <= COMPARISONS
    assert sum(len(one.model_dump_json()) for one in problems) <= 4_000 * NAMED
