"""Schemas of tools agree with the call: what a submit refuses, the call refuses, too."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compiler.requirements import requirements_of
from app.fleet.tools import ToolsThere
from leadhand.functions.arguments import ArgumentsRefused, typed_arguments
from leadhand.graphs.documents import GraphDocument
from leadhand.models.tool_values import misfit
from leadhand.models.views import ToolHere, ToolParameter, WorkerView
from workers.registry.tool_schema import _LISTS, _OBJECTS, Function, input_schema

HINTS = [
    "str", "int", "float", "bool", "None", "list", "dict", "list[int]", "dict[str, int]",
    "tuple[int, ...]", "tuple[int, str]", "set[str]", "int | None", "str | int", "list[dict]",
    "'int'", "Optional[int]", "Union[int, list[str]]", "Literal['a', 1]", "Annotated[int, 'x']",
    "typing.List[bool]", "object", "Any", "list[list[float]]", "dict[str, list[int | None]]",
    "tuple[()]", "Tuple[()]",
]  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["a", "1", "x", "true", ""])
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=5,
)  # fmt: skip


def tool(source: str) -> Function:
    (node,) = ast.parse(source).body
    assert isinstance(node, Function)
    return node


def schema_of(source: str) -> dict[str, Any]:
    schema: dict[str, Any] = input_schema(tool(source))
    return schema


@given(hint=st.sampled_from(HINTS), value=VALUES)
def test_no_value_is_refused_at_submit_that_the_call_accepts(hint: str, value: Any) -> None:
    source = f"def f(x: {hint}): ..."
    names: dict[str, Any] = {}
    exec("import typing\nfrom typing import *\n" + source, names)
    refused = misfit(schema_of(source)["properties"]["x"], value)
    try:
        typed_arguments(names["f"], {"x": value})
    except ArgumentsRefused:
        # A type without a schema is compared in the call alone.
        in_call = ("tuple[int, str]", "set[str]", "tuple[()]", "Tuple[()]")
        assert refused is not None or hint in in_call
    else:
        assert refused is None


def test_a_schema_has_types_defaults_and_descriptions() -> None:
    source = '''
async def fetch(url: str, *, tries: int = 3, tags: list[str] | None = None, how=print, **more):
    """Fetch a page.

    Args:
        url: The address of the page:
            it is absolute.
        tries (int): How often.

    Returns:
        url: not an argument
    """
'''
    assert schema_of(source) == {
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "The address of the page: it is absolute."},
            "tries": {"type": "integer", "description": "How often.", "default": 3},
            "tags": {
                "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                "default": None,
            },
            "how": {},
        },
        "required": ["url"],
        "additionalProperties": True,
    }


def test_descriptions_in_the_style_of_sphinx() -> None:
    schema = schema_of(
        'def f(a, b):\n    """Do.\n\n    :param a: First.\n    :param int b: Then."""'
    )
    assert [one["description"] for one in schema["properties"].values()] == ["First.", "Then."]


@pytest.mark.parametrize("hint", ["1 +", "x.y.z", "a[b][c]", "'((('", "lambda: 0", "list[...]"])
def test_a_hint_that_is_no_type_has_no_schema(hint: str) -> None:
    try:
        schema = schema_of(f"def f(x: {hint}): ...")
    except SyntaxError:
        return
    assert misfit(schema["properties"]["x"], {"any": "thing"}) is None or hint == "list[...]"


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"url": 3}, "url"), ({"url": "u", "tries": "often"}, "tries"),
        ({"url": "u", "tries": "${inputs.many}"}, "tries"), ({"url": "${inputs.list}"}, "url"),
        ({"url": "u", "tires": 3}, "tires"), ({}, "url"),
        ({"url": "u", "tries": "3"}, None), ({"url": "${a.url}", "tries": "${a.n}"}, None),
        ({"url": "u ${inputs.list}"}, None),
    ],
)  # fmt: skip
def test_known_values_are_compared_at_submit(arguments: Any, field: str | None) -> None:
    here = ToolHere(
        name="web:fetch",
        parameters=[ToolParameter(name="url"), ToolParameter(name="tries", required=False)],
        input_schema=input_schema(tool("def fetch(url: str, tries: int = 3): ...")),
    )
    steps = [
        {"name": "a", "tool": "echo"},
        {"name": "b", "tool": "web:fetch", "arguments": arguments},
    ]
    inputs = {"many": "many", "list": [1]}
    document = GraphDocument.model_validate({"inputs": inputs, "steps": steps})
    there = ToolsThere([WorkerView(name="w", place="here", tools_here=[here])])
    faults = [there.fault(need) for need in requirements_of(document).tools]
    found = faults[1]
    if field is None:
        assert found is None
    else:
        assert found is not None
        assert found.field == f"steps[1].arguments.{field}"


@pytest.mark.parametrize("name", [*sorted(_LISTS | _OBJECTS), "Optional", "Union", "Literal",
                                  "Annotated", "typing.Other"])  # fmt: skip
def test_a_type_without_parts_has_a_schema(name: str) -> None:
    schema = schema_of(f"def f(x: {name}[()], y: '{name}[()]' = None, z: int = 1): ...")
    assert schema["properties"]["x"] in ({}, {"type": "array"}, {"type": "object"})
    assert schema["properties"]["z"] == {"type": "integer", "default": 1}
