"""Serves the OpenAPI document and a readable page of it, without a token."""

from __future__ import annotations

import base64
import hashlib
import json
from functools import cache

from flask import Response, current_app, render_template

from api.openapi.document import Schema, build_document, status_phrase
from api.openapi.page_text import example_body, groups_of, render_markdown
from api.serving import Call, serves
from app.engine import Engine
from leadhand.contract import fleet

_FOUND_UNDER = "#/components/schemas/"


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
