"""Derives the JSON Schema of a tool's arguments from its source: type hints, defaults, docstring.

The source is parsed and never run. A type hint that is not one of the well-known types gets the
empty schema, which any value fits: the call itself compares the value with the type.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.truncate import cut

Schema = dict[str, JsonValue]
Function = ast.FunctionDef | ast.AsyncFunctionDef

_SCALARS: Mapping[str, str] = {
    "str": "string", "int": "integer", "float": "number", "bool": "boolean", "None": "null",
}  # fmt: skip
_LISTS = {"list", "List", "Sequence", "Iterable", "Collection", "set", "Set", "frozenset", "tuple",
          "Tuple"}  # fmt: skip
_OBJECTS = {"dict", "Dict", "Mapping", "MutableMapping"}
#: Characters of a description, of a default as JSON, and levels of nested types.
_DESCRIPTION, _DEFAULT, _DEEPEST = 300, 300, 10
#: The first line of the part of a docstring that describes the arguments.
_SECTION = re.compile(r"^(Args|Arguments|Parameters):$")
_GOOGLE = re.compile(r"^ {1,4}\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s+(.*)$")
_SPHINX = re.compile(r"^:param\s+(?:[^:]*\s)?(\w+)\s*:\s*(.*)$")


class Parameter(NamedTuple):
    """One argument of a function, in its source."""

    name: str
    annotation: ast.expr | None
    default: ast.expr | None
    required: bool


def parameters_of(given: ast.arguments) -> Iterator[Parameter]:
    """Yields the parameters of a function, without `*args` and `**kwargs`."""
    places = [*given.posonlyargs, *given.args]
    first_optional = len(places) - len(given.defaults)
    for number, one in enumerate(places):
        required = number < first_optional
        default = None if required else given.defaults[number - first_optional]
        yield Parameter(one.arg, one.annotation, default, required)
    for one, keyword_default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield Parameter(one.arg, one.annotation, keyword_default, keyword_default is None)


def input_schema(function: Function) -> Schema:
    """Returns the JSON Schema of a function's arguments, from type hints, defaults and docstring.

    >>> tool = ast.parse("def f(a: int, b: list[str] | None = None): ...").body[0]
    >>> input_schema(tool)["properties"]["b"]
    {'anyOf': [{'type': 'array', 'items': {'type': 'string'}}, {'type': 'null'}], 'default': None}
    """
    about = _descriptions(ast.get_docstring(function) or "")
    properties: Schema = {}
    required: list[JsonValue] = []
    for one in parameters_of(function.args):
        schema = {} if one.annotation is None else _schema(one.annotation)
        if one.name in about:
            schema = {**schema, "description": cut(about[one.name], _DESCRIPTION)}
        properties[one.name] = {**schema, **_default(one.default)}
        if one.required:
            required.append(one.name)
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": function.args.kwarg is not None,
    }


def _default(node: ast.expr | None) -> Schema:
    """The default, if it is a literal that JSON can hold."""
    if node is None:
        return {}
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return {}
    is_json = _is_json(value) and len(repr(value)) <= _DEFAULT
    return {"default": value} if is_json else {}


def _is_json(value: object) -> bool:
    if isinstance(value, list):
        return all(map(_is_json, value))
    if isinstance(value, dict):
        return all(isinstance(name, str) and _is_json(item) for name, item in value.items())
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor NaN
    return value is None or isinstance(value, str | int)


def _schema(node: ast.expr, depth: int = 0) -> Schema:
    if depth > _DEEPEST:
        return {}
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str() as text):
            return _of_text(text, depth)
        case ast.BinOp(op=ast.BitOr()):
            return _union([node.left, node.right], depth)
        case ast.Subscript():
            return _generic(_name(node.value), node.slice, depth)
        case _:
            return _plain(_name(node))


def _of_text(text: str, depth: int) -> Schema:
    try:
        return _schema(ast.parse(text, mode="eval").body, depth + 1)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _name(node: ast.expr) -> str:
    """The last name of `list`, `typing.List` and the like."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _plain(name: str) -> Schema:
    if name in _SCALARS:
        return {"type": _SCALARS[name]}
    if name in _LISTS:
        return {"type": "array"}
    return {"type": "object"} if name in _OBJECTS else {}


def _generic(name: str, inner: ast.expr, depth: int) -> Schema:
    parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if not parts:  # `tuple[()]` and the like
        return _plain(name)
    if name in _OBJECTS:
        values = _schema(parts[1], depth + 1) if len(parts) == 2 else {}
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if name in _LISTS:
        is_fixed = name.lower() == "tuple" and not _is_open(parts)
        items = {} if is_fixed else _schema(parts[0], depth + 1)
        return {"type": "array", **({"items": items} if items else {})}
    match name:
        case "Optional":
            return _union([*parts, ast.Constant(value=None)], depth)
        case "Union":
            return _union(parts, depth)
        case "Literal":
            return _choice(parts)
        case "Annotated":
            return _schema(parts[0], depth + 1)
        case _:
            return {}


def _is_open(parts: list[ast.expr]) -> bool:
    """Whether a tuple is of any length: `tuple[int, ...]`."""
    last = parts[-1]
    return len(parts) == 2 and isinstance(last, ast.Constant) and last.value is Ellipsis


def _choice(parts: list[ast.expr]) -> Schema:
    values: list[JsonValue] = [
        part.value
        for part in parts
        if isinstance(part, ast.Constant) and isinstance(part.value, str | int | None)
    ]
    return {"enum": values} if len(values) == len(parts) else {}


def _union(parts: list[ast.expr], depth: int) -> Schema:
    members: list[JsonValue] = []
    for part in parts:
        found = _schema(part, depth + 1)
        if not found:
            return {}  # any value fits one of the members
        inner = found.get("anyOf") if len(found) == 1 else None
        members += inner if isinstance(inner, list) else [found]
    return {"anyOf": members}


def _descriptions(docstring: str) -> dict[str, str]:
    r"""The descriptions of arguments in a docstring in the style of Google or Sphinx.

    >>> _descriptions("Find.\n\nArgs:\n    query: What to\n        look for.\n    n (int): Most.")
    {'query': 'What to look for.', 'n': 'Most.'}
    """
    found: dict[str, list[str]] = {}
    is_inside, current = False, ""
    for line in inspect.cleandoc(docstring).splitlines():
        named = _SPHINX.match(line) or (_GOOGLE.match(line) if is_inside else None)
        if named is not None:
            current = named[1]
            found[current] = [named[2]]
        elif not line.startswith(" "):
            is_inside, current = _SECTION.match(line) is not None, ""
        elif current:
            found[current].append(line.strip())
    return {name: " ".join(texts) for name, texts in found.items()}
