"""Serves the OpenAPI document and a readable page of it, without a token."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Iterator
from functools import cache

from flask import Response, current_app, render_template

from api.openapi import Schema, build_document, status_phrase
from api.serving import Call, serves
from app.engine import Engine
from leadhand.contract import fleet

_FOUND_UNDER = "#/components/schemas/"
_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_BOLD = re.compile(r"\*\*(.+?)\*\*")
#: Example values of fields, where the type says too little.
_EXAMPLES: dict[str, object] = {
    "task": "Make the tests pass",
    "checkers": ["pytest -q"],
    "doer": {"agent": "claude"},
    "cwd": "/home/me/project",
    "kind": "loop",
    "op": "add",
}
_OF_TYPE: dict[str, object] = {
    "string": "text", "integer": 1, "number": 1.5, "boolean": True, "null": None,
}  # fmt: skip
#: How deep an example goes before it is cut.
_DEPTH = 4


def render_markdown(text: str | None) -> str:
    """Renders paragraphs, code and bold text as HTML; everything else is escaped.

    >>> render_markdown("Needs `read` & **care**.")
    'Needs <code>read</code> &amp; <b>care</b>.'
    """
    paragraphs = [_inline(one) for one in re.split(r"\n\s*\n", (text or "").strip())]
    return "<br><br>".join(paragraphs)


def groups_of(paths: Schema) -> dict[str, list[tuple[str, str, Schema]]]:
    """Groups the operations of the OpenAPI document by tag, each with its method and path."""
    found: dict[str, list[tuple[str, str, Schema]]] = {}
    for path, methods in paths.items():
        for method, one in methods.items():
            found.setdefault(one["tags"][0], []).append((method, path, one))
    return dict(sorted(found.items()))


def example_body(schema: Schema, schemas: Schema) -> str:
    """Generates example JSON with a schema's required fields, or with its first if none is."""
    return json.dumps(_example(schema, schemas, _DEPTH), indent=2)


def _inline(text: str) -> str:
    done, last = "", 0
    for found in _CODE.finditer(text):
        done += _bold(text[last : found.start()]) + f"<code>{html.escape(found[2])}</code>"
        last = found.end()
    return done + _bold(text[last:])


def _bold(text: str) -> str:
    return _BOLD.sub(r"<b>\1</b>", html.escape(text))


def _example(schema: Schema, schemas: Schema, depth: int) -> object:
    if "$ref" in schema:
        schema = schemas[schema["$ref"].removeprefix(_FOUND_UNDER)]
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else schema["enum"][0]
    for several in ("oneOf", "anyOf", "allOf"):
        if several in schema:
            return _example(schema[several][0], schemas, depth)
    if "properties" in schema:
        return dict(_fields(schema, schemas, depth)) if depth else {}
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}), schemas, depth - 1)] if depth else []
    return {} if schema.get("type") == "object" else _OF_TYPE.get(str(schema.get("type")), "text")


def _fields(schema: Schema, schemas: Schema, depth: int) -> Iterator[tuple[str, object]]:
    """The required fields; the first one where none is required."""
    properties = schema["properties"]
    required = list(schema.get("required", ())) or list(properties)[:1]
    if "task" in required:
        required = [*(name for name in ("kind",) if name in properties), *required, "doer"]
    for name in dict.fromkeys(required):
        known = _EXAMPLES.get(name)
        yield name, known if known is not None else _example(properties[name], schemas, depth - 1)


@cache
def _document() -> Schema:
    return build_document()


@serves(fleet.DESCRIPTION)
def document(_engine: Engine, _call: Call, _: None) -> Response:
    """Describes this API (OpenAPI 3.1)."""
    response = Response(json.dumps(_document()))
    response.headers["Content-Type"] = "application/json"
    response.headers["Cache-Control"] = "no-cache"
    return response


@serves(fleet.DESCRIPTION_PAGE)
def page(_engine: Engine, _call: Call, _: None) -> Response:
    """Shows the description as a page."""
    style, whole = _style(), _document()
    text = render_template(
        "description.html",
        api=whole,
        style=style,
        shown=summarize_schema,
        groups=groups_of(whole["paths"]),
        markdown=render_markdown,
        example=lambda schema: example_body(schema, whole["components"]["schemas"]),
        phrase=status_phrase,
        here=lambda ref: ref.removeprefix(_FOUND_UNDER),
    )
    response = Response(text)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    response.headers["Content-Security-Policy"] = (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none';"
        " form-action 'none'; frame-ancestors 'none'"
    )
    response.headers["Content-Type"] = "text/html; charset=utf-8"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-cache"
    return response


def summarize_schema(schema: Schema) -> list[tuple[str, str | None]]:
    """Summarizes a schema in words, each with the name of the schema that it links to.

    >>> summarize_schema({"anyOf": [{"type": "string", "maxLength": 9}, {"type": "null"}]})
    [('string, at most 9 long', None), ('null', None)]
    >>> summarize_schema({"type": "array", "items": {"$ref": "#/components/schemas/StepView"}})
    [('list of StepView', 'StepView')]
    """
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_FOUND_UNDER)
        return [(name, name)]
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return [word for one in schema[several] for word in summarize_schema(one)]
    if schema.get("type") == "array":
        return [(f"list of {word}", to) for word, to in summarize_schema(schema.get("items", {}))]
    return [(_words(schema), None)]


def _words(schema: Schema) -> str:
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(one) for one in schema["enum"])
    words = [str(schema.get("format") or schema.get("type") or "anything")]
    for name, saying in _LIMITS.items():
        if name in schema:
            words.append(saying.format(schema[name]))
    return ", ".join(words)


_LIMITS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "minLength": "at least {} long",
    "maxLength": "at most {} long",
    "pattern": "like {}",
    "default": "else {}",
}


@cache
def _style() -> str:
    text, _, _ = current_app.jinja_env.loader.get_source(  # type: ignore[union-attr]
        current_app.jinja_env, "description.css"
    )
    return text
