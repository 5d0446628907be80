"""Describes the API as OpenAPI 3.1, from its routes, its operations and their models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, get_args, get_origin

from flask import Flask
from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import DefsRef, GenerateJsonSchema
from werkzeug.routing import Rule

from api.operations import JSON, OPERATIONS, Operation, Says
from api.schemas import as_accepted, as_meant
from api.scopes import PUBLIC, scope_of
from leadhand.problems import MEDIA_TYPE, Problem

Schema = dict[str, Any]

_REF = "#/components/schemas/{model}"
_PATH_PARAMETER = re.compile(r"<(?:[^:<>]+:)?(\w+)>")
_CHOICE = re.compile(r"<any\(([^)]*)\):(\w+)>")
#: What every problem's status means where it is said of a request in general.
_REFUSALS = {
    400: "The request cannot be read.",
    401: "A token is needed, or the one that was sent opens nothing.",
    403: "The token does not grant this.",
    404: "There is no such thing.",
    409: "The session's status does not allow this.",
    412: "It has changed since it was seen.",
    413: "The body is too large.",
    415: "The body is not JSON by its own word.",
    422: "A field or parameter is not valid; each is named, with the way out.",
    429: "The token's quota is used up.",
    503: "Redis does not answer, too many streams are open, or a newer API is needed; come again.",
}
_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "The same key with the same body is the same session, or the same token.",
        {"type": "string", "pattern": "^[!-~]([ -~]{0,198}[!-~])?$"},
    ),
    "If-Match": (
        "The ETag of what was seen; a session's is compared weakly. `*` for any.",
        {"type": "string"},
    ),
    "If-None-Match": (
        "The ETag of the session as it is known already.",
        {"type": "string"},
    ),
    "Last-Event-ID": (
        "The id of the last event that was seen; it goes before `after`.",
        {"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$"},
    ),
    "ETag": ("What it is now, to be sent as If-Match.", {"type": "string"}),
    "Location": ("Where the session is.", {"type": "string"}),
    "Content-Disposition": ("The name to keep it under.", {"type": "string"}),
    "Retry-After": ("After how many seconds to come again.", {"type": "string"}),
}
#: A value of these that cannot be used is refused; of others it means nothing.
_READ_STRICTLY = {"Idempotency-Key", "Last-Event-ID"}
_PATH_SCHEMAS: Mapping[str, Schema] = {
    "session": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
    "token": {"type": "string", "pattern": "^[0-9a-f]{12}$"},
    "name": {"type": "string", "pattern": "^[^/]"},
}


def described(flask: Flask) -> Schema:
    """The whole description. Raises LookupError for a route that no operation tells of."""
    rules = {(rule.endpoint, method): rule for rule in flask.url_map.iter_rules()
             for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}}  # fmt: skip
    known = {(one.endpoint, one.method): one for one in OPERATIONS}
    if untold := rules.keys() - known.keys():
        raise LookupError(f"api/operations.py does not tell of {sorted(untold)}")
    made = _links(rules)
    shapes = Shapes(one for pair, one in known.items() if pair in rules)
    paths: dict[str, Schema] = {}
    for pair, one in known.items():
        if pair in rules:
            path = _PATH_PARAMETER.sub(r"{\1}", rules[pair].rule)
            paths.setdefault(path, {})[one.method.lower()] = _operation(
                one, rules[pair], shapes, made
            )
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Leadhand",
            "version": version("leadhand"),
            "description": "Runs agent work on a fleet, judges it, and remembers all of it.",
        },
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": shapes.schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class Shapes:
    """The schemas of all models, each written once."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        asked: list[tuple[Any, str]] = [(Problem, "serialization")]
        for one in operations:
            if one.body is not None:
                asked.append((one.body, "validation"))
            asked += [(s, "serialization") for says in one.says for s in says.body.values()]
        adapters: list[TypeAdapter[Any]] = [TypeAdapter(model) for model, _ in asked]
        inputs = [
            (number, mode, adapter.core_schema)
            for number, ((_, mode), adapter) in enumerate(zip(asked, adapters, strict=True))
        ]
        generator = GenerateJsonSchema(by_alias=True, ref_template=_REF)
        found, definitions = generator.generate_definitions(inputs)  # type: ignore[arg-type]
        self._found = {repr(asked[number][0]): schema for (number, _), schema in found.items()}
        models = {m.__name__: m for model, _ in asked for m in _models_in(model)}
        self.schemas: Schema = {
            name: as_accepted(name, as_meant(schema, models.get(name)))
            for name, schema in sorted(_with_flows_left_open(definitions, found).items())
        }

    def of(self, model: object) -> Schema:
        """The schema of a model, by reference."""
        return dict(self._found[repr(model)])


def _with_flows_left_open(
    definitions: Mapping[DefsRef, Schema], asked: Mapping[Any, Any]
) -> dict[str, Schema]:
    """The steps of flows have a schema of their own, which is published with the package."""
    step = {"type": "object", "description": "A step, as `leadhand/flow.schema.json` has it."}
    for model, schema in definitions.items():
        if model.startswith("Flow") and "steps" in schema.get("properties", {}):
            schema["properties"]["steps"]["items"] = step
            for part in ("agents", "inputs", "commands", "markdown", "flows"):
                schema["properties"][part] = {"type": "object"}
    needed, left = set[str](), _named_in(asked)
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left |= _named_in(definitions[DefsRef(name)])
    return {str(model): found for model, found in definitions.items() if model in needed}


def _named_in(schema: object) -> set[str]:
    return set(re.findall(r"#/components/schemas/([\w.-]+)", str(schema)))


def _operation(one: Operation, rule: Rule, shapes: Shapes, made: Schema) -> Schema:
    is_public = one.endpoint in PUBLIC
    told: Schema = {
        "operationId": one.endpoint,
        "summary": one.summary,
        "tags": [one.endpoint.partition(".")[0]],
        "responses": dict(sorted(_responses(one, rule, shapes, is_public=is_public).items())),
    }
    if is_public:
        told["security"] = []
    else:
        told["description"] = f"Needs the scope `{scope_of(one.endpoint).value}`."
    if parameters := [*_path(rule), *_query(one.query), *(_header(n) for n in one.headers)]:
        told["parameters"] = parameters
    if one.makes is not None:
        told["responses"][str(one.says[0].status)]["links"] = made[one.makes]
    if one.body is not None:
        content = {JSON: {"schema": shapes.of(one.body)}}
        told["requestBody"] = {"required": one.body_required, "content": content}
    return told


def _links(rules: Mapping[tuple[str, str], Rule]) -> Schema:
    """What can be done next with what was made, by the path parameter that its id is for."""
    found: Schema = {}
    for (endpoint, _), rule in sorted(rules.items()):
        for name in rule.arguments:
            parameters = {name: "$response.body#/id"}
            link = {"operationId": endpoint, "parameters": parameters}
            found.setdefault(name, {})[endpoint] = link
    return found


def _responses(one: Operation, rule: Rule, shapes: Shapes, *, is_public: bool) -> Schema:
    refused = set(one.refuses)
    if not is_public:
        refused |= {401, 403, 503}
    if rule.arguments:
        refused.add(404)
    if one.body is not None:
        refused |= {400, 413, 415, 422}
    if one.query is not None:
        refused.add(422)
    if _READ_STRICTLY & set(one.headers):
        refused.add(400)
    problem = {MEDIA_TYPE: {"schema": shapes.of(Problem)}}
    said = {str(says.status): _response(says, shapes) for says in one.says}
    for status in refused:
        said[str(status)] = {"description": _REFUSALS[status], "content": problem}
        if status in (429, 503):
            said[str(status)]["headers"] = {"Retry-After": _response_header("Retry-After")}
    return said


def _response(says: Says, shapes: Shapes) -> Schema:
    told: Schema = {"description": says.what}
    if says.headers:
        told["headers"] = {n: {**_response_header(n), "required": True} for n in says.headers}
    if says.body:
        told["content"] = {media: {"schema": shapes.of(m)} for media, m in says.body.items()}
    return told


def _response_header(name: str) -> Schema:
    what, schema = _HEADERS[name]
    return {"description": what, "schema": schema}


def _header(name: str) -> Schema:
    what, schema = _HEADERS[name]
    return {"name": name, "in": "header", "description": what, "schema": schema}


def _path(rule: Rule) -> Iterable[Schema]:
    choices = {name: words.split(", ") for words, name in _CHOICE.findall(rule.rule)}
    for name in _PATH_PARAMETER.findall(rule.rule):
        schema = {"enum": choices[name]} if name in choices else _PATH_SCHEMAS[name]
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query(model: type[BaseModel] | None) -> Iterable[Schema]:
    if model is None:
        return
    whole = as_meant(model.model_json_schema(ref_template=_REF), model)
    for name, schema in whole.get("properties", {}).items():
        told: Schema = {"name": name, "in": "query", "schema": _plain(schema, whole)}
        if "description" in told["schema"]:
            told["description"] = told["schema"].pop("description")
        yield told


def _plain(schema: Schema, whole: Schema) -> Schema:
    """A query's parameter is there or not, it is never null; and it refers to nothing."""
    schema = dict(schema)
    others = [one for one in schema.pop("anyOf", []) if one.get("type") != "null"]
    for other in others:
        schema |= other
    if "$ref" in schema:
        schema |= whole["$defs"][schema.pop("$ref").rpartition("/")[2]]
    for noise in ("title", "default") if schema.get("default") is None else ("title",):
        schema.pop(noise, None)
    return schema


def _models_in(model: object) -> Sequence[type[BaseModel]]:
    """All models that a type is made of."""
    found: list[type[BaseModel]] = []
    _collect(model, found.append, set())
    return found


def _collect(model: object, tell: Callable[[type[BaseModel]], None], seen: set[int]) -> None:
    if id(model) in seen:
        return
    seen.add(id(model))
    if isinstance(model, type) and issubclass(model, BaseModel):
        tell(model)
        for field in model.model_fields.values():
            _collect(field.annotation, tell, seen)
    elif get_origin(model) is not None:
        for part in get_args(model):
            _collect(part, tell, seen)


def status_phrase(status: str) -> str:
    """A status with its name.

    >>> status_phrase("404")
    '404 Not Found'
    """
    return f"{status} {HTTPStatus(int(status)).phrase}"
