"""The names and kinds of tools, and their arguments by JSON Schema (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Literal, TypeAlias

from pydantic import JsonValue, TypeAdapter, ValidationError

from leadhand.models.json_schema import (
    DEEPEST,
    Judge,
    TooLarge,
    properties_of,
    schema_of,
    supported,
    whole,
)
from leadhand.models.suggestions import listed
from leadhand.models.views.fleet import ToolParameter

_Schema = Mapping[str, JsonValue]
#: Characters of the name of a type.
_SHOWN = 80
#: Tools that every worker has.
BUILT_IN_TOOLS = frozenset({"echo", "noop"})
#: The file that declares commands, requests and servers, beside each agents file.
TOOLS_FILE = "tools.toml"
#: The beginnings of the names of agents and flows as tools.
AGENT, FLOW = "agent:", "flow:"
#: Names that no server can have: tools of compiled flows and graphs begin with them.
RESERVED_SERVERS = frozenset({"flow", "graph"})
#: Files that would give functions the names of agents and flows.
RESERVED_MODULES = frozenset({"agent", "flow"})
_FUNCTION = re.compile(r"^[A-Za-z]\w*:[A-Za-z]\w*$", re.ASCII)
#: An agent's or flow's name; an entry of tools.toml; a tool of a server.
_OTHERS = re.compile(
    r"^(?:(?:agent|flow):[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
    r"|[A-Za-z][A-Za-z0-9_-]{0,63}"
    r"|(?!flow\.|graph\.)[A-Za-z][A-Za-z0-9_-]{0,63}\.[A-Za-z0-9_./-]{1,128})$",
    re.ASCII,
)
#: What a tool is, by its name alone: an entry of tools.toml is `declared`.
Shape: TypeAlias = Literal["built-in", "function", "declared", "mcp", "agent", "flow"]
#: What the names of tools begin with that the submitter of a graph carries out itself.
LOCAL_PREFIX = "local:"
_LOCAL = re.compile(r"^local:[^\x00-\x1f\x7f]+$")
#: Characters of a value that an error shows.
_VALUES_SHOWN = 120
#: Types to which a call converts values of others, such as texts that are numbers.
_CONVERTED: Mapping[str, type] = {"integer": int, "number": float, "boolean": bool}


def parameters_of(schema: _Schema) -> list[ToolParameter]:
    """Returns the arguments that a JSON Schema of an object declares, in order.

    >>> [one] = parameters_of({"properties": {"n": {"type": "integer"}}, "required": ["n"]})
    >>> one.name, one.annotation, one.required
    ('n', 'integer', True)
    """
    properties, required = schema.get("properties"), schema.get("required")
    if not isinstance(properties, dict):
        return []
    needed = required if isinstance(required, list) else []
    return [
        ToolParameter(
            name=name,
            annotation=type_name(one) if isinstance(one, dict) else None,
            required=name in needed,
        )
        for name, one in properties.items()
    ]


def type_name(schema: _Schema) -> str | None:
    """Returns a short name of the type in a JSON Schema; None for any value.

    >>> type_name({"type": "array", "items": {"type": "string"}}), type_name({"enum": ["a", 1]})
    ('array of string', '"a" | 1')
    """
    choices, members, kind = schema.get("enum"), schema.get("anyOf"), schema.get("type")
    if isinstance(choices, list):
        return " | ".join(json.dumps(one, ensure_ascii=False) for one in choices)[:_SHOWN]
    if isinstance(members, list):
        names = [type_name(one) or "any" for one in members if isinstance(one, dict)]
        return " | ".join(names)[:_SHOWN]
    if isinstance(kind, list):
        return " | ".join(map(str, kind))[:_SHOWN]
    items = schema.get("items")
    if kind == "array" and isinstance(items, dict) and type_name(items):
        return f"array of {type_name(items)}"[:_SHOWN]
    return None if kind is None else str(kind)[:_SHOWN]


def is_local_tool(name: str) -> bool:
    """Whether a tool of a graph runs in the submitter's own process.

    >>> is_local_tool("local:search papers"), is_local_tool("papers:search")
    (True, False)
    """
    return name.startswith(LOCAL_PREFIX)


def check_graph_tool_name(value: str) -> str:
    """Validates and returns the name of a tool in a graph, also `local:...`. Raises ValueError."""
    return value if _LOCAL.match(value) else check_tool_name(value)


def check_tool_name(value: str) -> str:
    """Validates and returns the name of a tool, but not `local:...`. Raises ValueError.

    >>> check_tool_name("papers:search"), check_tool_name("github.search_issues")
    ('papers:search', 'github.search_issues')
    """
    if is_local_tool(value):
        raise ValueError(f"it is {value!r}: only graphs have local tools; name another module")
    if not _FUNCTION.match(value) and not _OTHERS.match(value):
        raise ValueError(
            f"it is {value!r}; give 'module:function', 'agent:NAME', 'flow:NAME', 'SERVER.TOOL',"
            " the name of an entry of tools.toml, 'echo' or 'noop'"
        )
    return value


def check_flow_tool_name(value: str) -> str:
    """Validates the name of a tool in a flow, which cannot be a flow. Raises ValueError."""
    if check_tool_name(value).startswith(FLOW):
        raise ValueError(f"it is {value!r}; a flow runs another one by a step of the type subflow")
    return value


def shape_of(name: str) -> Shape:
    """Returns the kind of a tool, by the form of its name.

    >>> [shape_of(n) for n in ("echo", "a:b", "wc", "github.search", "agent:claude", "flow:x")]
    ['built-in', 'function', 'declared', 'mcp', 'agent', 'flow']
    """
    if name in BUILT_IN_TOOLS:
        return "built-in"
    if name.startswith(AGENT):
        return "agent"
    if name.startswith(FLOW):
        return "flow"
    if ":" in name:
        return "function"
    return "mcp" if "." in name else "declared"


def owner_of(name: str) -> str:
    """Returns the module, server or entry that defines a tool: the first part of its name.

    >>> owner_of("papers:search"), owner_of("github.search"), owner_of("wc")
    ('papers', 'github', 'wc')
    """
    return name.partition("." if shape_of(name) == "mcp" else ":")[0]


def is_internal(name: str) -> bool:
    """Whether the tool is an internal one, which only compiled flows and graphs use.

    >>> is_internal("flow.tally"), is_internal("flow:review")
    (True, False)
    """
    return name.partition(".")[0] in RESERVED_SERVERS and "." in name and ":" not in name


def is_newer_kind(name: str) -> bool:
    """Whether only workers of program schema 7 or later know tools of this kind."""
    return shape_of(name) not in ("built-in", "function")


def misfit(schema: _Schema, value: JsonValue) -> str | None:
    """Returns what is wrong with an argument of a tool; None if it is valid.

    As in the call, a text that is a number may be a number.

    >>> misfit({"type": "integer"}, "3"), misfit({}, object)
    (None, None)
    >>> misfit({"type": "array", "items": {"type": "integer"}}, [1, "x"])
    'in [1], it should be a whole number'
    >>> misfit({"type": "integer", "maximum": 10}, 99)
    'it should be less than or equal to 10'
    """
    return _fit(schema, value)[1]


def misfits(tool: str, schema: _Schema, known: _Schema) -> Iterator[tuple[str, str]]:
    """Yields the arguments whose values the tool's schema rejects, each with the error text."""
    for name, value in known.items():
        wrong = misfit(schema_of(schema, name), value)
        if wrong is not None:
            yield name, f"{wrong}; `leadhand tools show {tool}` shows its arguments"


def convert(
    schema: _Schema, arguments: Mapping[str, JsonValue]
) -> tuple[dict[str, JsonValue], str | None]:
    """Converts arguments by a tool's schema, with defaults; returns (arguments, first error).

    >>> convert({"properties": {"n": {"type": "integer"}}, "required": ["n"]}, {"n": "3"})
    ({'n': 3}, None)
    >>> convert({"properties": {"n": {}}, "required": ["n"]}, {})[1]
    "argument 'n' is missing; give it"
    """
    known = properties_of(schema)
    if schema.get("additionalProperties") is False or known:
        unknown = next((name for name in arguments if name not in known), None)
        if unknown is not None and schema.get("additionalProperties") in (False, None):
            return {}, f"there is no argument {unknown!r}; there are: {listed(known)}"
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in arguments:
            return {}, f"argument {name!r} is missing; give it"
    found: dict[str, JsonValue] = {
        name: one["default"]
        for name, one in known.items()
        if isinstance(one, dict) and "default" in one
    }
    for name, value in arguments.items():
        found[name], wrong = _fit(schema_of(schema, name), value)
        if wrong is not None:
            return {}, f"argument {name!r}: it is {_shown(value)}; {wrong}"
    return found, None


def _fit(schema: _Schema, value: JsonValue) -> tuple[JsonValue, str | None]:
    """Converts a value by its schema; returns it, and what is wrong with it."""
    if not schema:
        return value, None
    compared, converted = supported(schema), value
    try:
        converted = _Conversion(compared).apply(compared, value, 0)
        found = Judge().misfits(compared, converted, most=1)
    except TooLarge:  # the server that declared the tool compares it
        return converted, None
    return (value, str(found[0])) if found else (converted, None)


class _Conversion:
    """Converts texts, numbers and true or false in a value to the types of a schema."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._judge = Judge()
        self._fits = self._judge.comparison(whole)

    def apply(self, schema: Any, value: Any, depth: int) -> Any:
        """Return a value converted by a part of the schema. Raises TooLarge."""
        self._judge.spend(None, 1)
        if depth > DEEPEST or not isinstance(schema, dict):
            return value
        if isinstance(reference := schema.get("$ref"), str):
            _, place, name = reference.split("/")
            value = self.apply(self._whole[place][name], value, depth + 1)
        if "enum" in schema or "const" in schema:
            return self._as_listed([*schema.get("enum", ()), schema.get("const")], value)
        value = self._of_type(schema.get("type", []), value)
        for one in schema.get("allOf", ()):
            value = self.apply(one, value, depth + 1)
        for name in ("anyOf", "oneOf"):
            value = self._as_member(schema.get(name, ()), value, depth)
        return self._within(schema, value, depth + 1)

    def _of_type(self, given: Any, value: Any) -> Any:
        kinds = given if isinstance(given, list) else [given]
        if kinds and not self._fits({"type": kinds}, value):
            for kind in filter(_CONVERTED.__contains__, kinds):
                with suppress(ValidationError):
                    return _adapter(kind).validate_python(value)
        return whole(value) if "integer" in kinds and "number" not in kinds else value

    def _as_listed(self, values: list[Any], value: Any) -> Any:
        """The value as the whole number of a list that equals it."""
        self._judge.spend(None, len(values))
        number = whole(value)
        is_listed = any(type(one) is int and one == number for one in values)
        return number if type(number) is int and is_listed else value

    def _as_member(self, members: Any, value: Any, depth: int) -> Any:
        """The value as the first member of a union that accepts it as it is, or else converted."""
        schemas = [one for one in members if isinstance(one, dict)]
        accepting = next((one for one in schemas if self._fits(one, value)), None)
        if accepting is not None:
            return self.apply(accepting, value, depth + 1)
        tried = ((one, self.apply(one, value, depth + 1)) for one in schemas)
        return next((found for one, found in tried if self._fits(one, found)), value)

    def _within(self, schema: dict[str, Any], value: Any, depth: int) -> Any:
        """The value with its items or fields converted."""
        if isinstance(value, list) and ("items" in schema or "prefixItems" in schema):
            first = schema.get("prefixItems", ())
            return [
                self.apply(first[n] if n < len(first) else schema.get("items"), one, depth)
                for n, one in enumerate(value)
            ]
        known, others = schema.get("properties", {}), schema.get("additionalProperties")
        if isinstance(value, dict) and (known or others):
            return {
                name: self.apply(known.get(name, others), one, depth) for name, one in value.items()
            }
        return value


@cache
def _adapter(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_CONVERTED[kind])


def _shown(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUES_SHOWN else f"{text[:_VALUES_SHOWN]}..."
