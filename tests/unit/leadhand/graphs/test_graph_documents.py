"""Graph documents: all errors at once, each with its place and the fix."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from leadhand.graphs.documents import GraphDocument
from leadhand.graphs.faults import GraphMalformed


def faults(*steps: dict[str, Any], **more: Any) -> list[str]:
    """The errors of a graph; each step without a tool gets `echo`."""
    given = [{"tool": "echo", **step} for step in steps]
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
