"""Schemas of tools agree with the call: what a submit refuses, the call refuses, too."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compiler.requirements import requirements_of
from app.fleet.admission import ToolsThere
from leadhand.functions.modules import ArgumentsRefused, typed_arguments
from leadhand.graphs.documents import GraphDocument, input_faults
from leadhand.models.forms import NumberField, check_value
from leadhand.models.json_schema import KEYWORDS, Judge, TooLarge, typed_value
from leadhand.models.tool_schemas import convert, misfit, misfits
from leadhand.models.views.fleet import ToolHere, ToolParameter, WorkerView
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
    | st.floats(-1e15, 1e15) | st.sampled_from([9.2e18, 2.0**63, -1e20]),
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
        # JSON has one number for 1 and 1.0.
        in_call = ("tuple[int, str]", "set[str]", "tuple[()]", "Tuple[()]", "Literal['a', 1]")
        assert refused is not None or hint in in_call
    else:
        # In Python, True is 1.
        assert refused is None or (hint == "Literal['a', 1]" and value is True)


@pytest.mark.parametrize("number", [2.0**63, -1e20])
def test_a_float_that_no_call_takes_for_an_integer_is_refused_at_submit(number: float) -> None:
    schema = schema_of("def f(x: list[int]): ...")["properties"]["x"]
    assert misfit(schema, [1.0, number]) == "in [1], it should be a whole number; write its digits"
    assert misfit(schema, [9.2e18, 10**20]) is None
    field = NumberField(type="integer")
    assert check_value(field, number)[1] == "it should be a whole number; write its digits"


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
    ("arguments", "fields"),
    [
        ({"url": 3}, ["url"]), ({"url": "u", "tries": "often"}, ["tries"]),
        ({"url": "u", "tries": "${inputs.many}"}, ["tries"]), ({"url": "${inputs.list}"}, ["url"]),
        ({"url": "u", "tires": 3}, ["tires"]), ({}, ["url"]),
        ({"tires": 3, "tries": "often"}, ["tires", "tries", "url"]),
        ({"url": "u", "tries": "3"}, []), ({"url": "${a.url}", "tries": "${a.n}"}, []),
        ({"url": "u ${inputs.list}"}, []),
    ],
)  # fmt: skip
def test_known_values_are_compared_at_submit(arguments: Any, fields: list[str]) -> None:
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
    found = [one.field for need in requirements_of(document).tools for one in there.faults(need)]
    assert found == [f"steps[1].arguments.{field}" for field in fields]


_LIMITED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "minimum": 1, "maximum": 10},
        "sizes": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}},
        "name": {"type": "string", "minLength": 2, "pattern": "^(a+)+$"},
        "page": {"anyOf": [{"type": "integer", "multipleOf": 5}, {"type": "null"}]},
        "range": {
            "type": "object",
            "properties": {"low": {"type": "integer", "minimum": 0}},
            "required": ["low"],
        },
        "odd": {"type": "integer", "minimum": "zero"},
        # As FastMCP writes a discriminated union.
        "shape": {"oneOf": [{"$ref": "#/$defs/square"}, {"type": "string", "pattern": "^a"}]},
        "price": {"type": "number", "multipleOf": 0.01},
        "grade": {"enum": [1.5, 2.5]},
        "limit": {"type": ["integer", "null"], "minimum": 0},
        "mode": {"type": "object", "properties": {"of": {"enum": ["fast"]}}},
        "many": {"type": "array", "uniqueItems": True, "maxItems": 30_000},
        "few": {"type": "array", "maxItems": 2},
        "other": {"$ref": "#/$defs/other"},
        # As draft 4 writes it.
        "old": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "required": True},
        "sure": {"type": "integer", "$defs": {"x": {"type": "int"}}},
        "not": {"type": "integer", "not": {"minimum": 5, "maximum": "9"}},
    },
}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("count", 99, "it should be less than or equal to 10"), ("count", "10", ""),
        ("count", "0", "it should be greater than or equal to 1"),
        ("sizes", [1, 0.5, 0], "in [2], it should be greater than 0"), ("sizes", [1], ""),
        ("name", "a", "it should have at least 2 characters"), ("name", "aa", ""),
        ("name", "bb", "it should match the pattern ^(a+)+$"),
        ("page", None, ""), ("page", 10, ""), ("page", 7, "it should be a multiple of 5"),
        ("range", {}, "it should have the fields low"), ("range", {"low": 1}, ""),
        ("range", {"low": "3"}, ""),
        ("range", {"low": -1}, "in .low, it should be greater than or equal to 0"),
        ("odd", 3, ""), ("other", {"any": 1}, ""),
        ("shape", {"kind": "square", "side": 2}, ""), ("shape", "a1", ""),
        ("price", 19.99, ""), ("grade", "1.5", "it should be one of 1.5, 2.5"),
        ("limit", "3", ""), ("limit", None, ""),
        ("mode", {"of": "fast"}, ""), ("mode", {"of": "slow"}, "in .of, it should be one of fast"),
        ("many", [{"a": 1}] * 20_000, "it should have each item once"),
        ("few", ["x"] * 3, "it should have at most 2 items"),
        ("old", "x", "it should be a whole number"), ("old", 1, ""), ("not", 7, ""),
        ("old", -1, "it should be greater than or equal to 0"),
        ("sure", "x", "it should be a whole number"), ("not", "x", "it should be a whole number"),
    ],
)  # fmt: skip
def test_a_value_is_compared_with_the_limits_of_the_schema(
    name: str, value: Any, error: str
) -> None:
    found = [text for _, text in misfits("web:fetch", _LIMITED, {name: value})]
    assert [text.startswith(error) for text in found] == ([True] if error else [])
    _, wrong = convert(_LIMITED, {name: value})
    assert (wrong is None) == (not error)
    assert wrong is None or error in wrong


@pytest.mark.parametrize("name", [*sorted(_LISTS | _OBJECTS), "Optional", "Union", "Literal",
                                  "Annotated", "typing.Other"])  # fmt: skip
def test_a_type_without_parts_has_a_schema(name: str) -> None:
    schema = schema_of(f"def f(x: {name}[()], y: '{name}[()]' = None, z: int = 1): ...")
    assert schema["properties"]["x"] in ({}, {"type": "array"}, {"type": "object"})
    assert schema["properties"]["z"] == {"type": "integer", "default": 1}


def test_an_error_about_a_limit_has_no_value() -> None:
    schema: Any = {"properties": {"password": {"type": "string", "maxLength": 3}}}
    _, wrong = convert(schema, {"password": "hunter2" * 1_000})
    ((_, text),) = misfits("web:fetch", {"properties": {"password": {"minLength": 9}}},
                           {"password": "hunter2"})  # fmt: skip
    assert "hunter2" not in text
    assert wrong is not None
    assert len(wrong) < 300


@pytest.mark.parametrize(
    ("schema", "value", "wanted"),
    [
        ({"type": "integer"}, 3.0, 3), ({"type": "number"}, 3.0, 3.0), ({}, 3.0, 3.0),
        ({"type": ["integer", "null"]}, 3.0, 3), ({"type": ["number", "integer"]}, 3.0, 3.0),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, 3.0, 3),
        ({"oneOf": [{"type": "null"}, {"$ref": "#/$defs/n"}], "$defs": {"n": {"const": 3}}},
         3.0, 3),
        ({"type": "array", "items": {"type": "integer"}}, [3.0, "4"], [3, 4]),
        ({"anyOf": [{"items": {"type": "integer"}}]}, [3.0], [3]),
        ({"properties": {"a": {"type": "integer"}}}, {"a": 3.0, "b": 3.0}, {"a": 3, "b": 3.0}),
        ({"enum": [1, 3]}, 3.0, 3), ({"enum": [3.0]}, 3.0, 3.0), ({"enum": [True]}, 1.0, None),
        ({"type": "integer", "enum": [3]}, 3.0, 3), ({"const": 3}, 3.0, 3),
    ],
)  # fmt: skip
def test_a_whole_number_is_an_integer_in_the_call(schema: Any, value: Any, wanted: Any) -> None:
    found, _ = convert({"properties": {"n": schema}}, {"n": value})
    assert repr(found.get("n")) == repr(wanted)


_DOUBLING = {f"a{n}": {"anyOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(9)}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"allOf": [{"items": {}}] * 20}, [0] * 20_000),
        ({"allOf": [{"additionalProperties": {}}] * 20}, {str(n): 0 for n in range(20_000)}),
        ({"allOf": [{"uniqueItems": True}] * 30}, list(range(20_000))),
        ({"allOf": [{"enum": [[0] * 900] * 99}] * 9}, [0] * 899 + [1]),
        ({"allOf": [{"properties": dict.fromkeys(map(str, range(9_000)), True)}] * 20}, {}),
    ],
    ids=["items", "fields", "unique", "enum", "properties"],
)  # fmt: skip
def test_a_comparison_is_bounded(schema: Any, value: Any) -> None:
    with pytest.raises(TooLarge):
        Judge().misfits(schema, value)


def test_all_comparisons_of_a_conversion_together_are_bounded() -> None:
    definitions = _DOUBLING | {"a9": {"type": "integer"}}
    schema: Any = {"items": {"$ref": "#/$defs/a0"}, "$defs": definitions}
    given: Any = {"n": ["1"] * 99}
    assert convert({"properties": {"n": schema}}, given) == (given, None)


_ANY: list[Any] = [
    None, True, 0, -1, 1.5, 1e300, "", "x", "(", "integer", [], [None], [1, 1], ["x"], ["x", "x"],
    [{}], [[]], [{"$ref": []}], {}, {"a": 1}, {"a": {"oneOf": []}}, {"$ref": {}}, "#", "#/$defs",
    "#/$defs/a", "#/$defs/a/b", "#/$defs/%41", "#/$defs/~0", "#/$defs/a\n", "#/$defs/loop",
    "http://a/b",
]  # fmt: skip
_NAMES = ("a", "", "a/b", "%41", "~0", "a\n")


@pytest.mark.parametrize("keyword", [*KEYWORDS, "$ref", "$defs", "definitions", "$id"])
def test_no_value_of_a_keyword_stops_a_comparison(keyword: str) -> None:
    definitions: Any = {**{one: {"type": "integer"} for one in _NAMES}, "loop": {}}
    for limit in _ANY:
        definitions["loop"] = {"$ref": "#/$defs/loop", keyword: limit}
        part: Any = {keyword: limit}
        schema: Any = {"$defs": definitions, **part, "properties": {"a": part}, "anyOf": [part]}
        schema |= part
        values: list[Any] = [3.0, [1, "1"], {"a": 1}]
        for value in values:
            with suppress(TooLarge):
                Judge().misfits(schema, value)
            convert({"properties": {"n": schema}}, {"n": value})
        convert(schema, {"a": 1})
        typed_value("1", schema)
        list(input_faults(schema, {"a": 1}))
        list(input_faults({"properties": {"a": part}}, {"a": 1}))
