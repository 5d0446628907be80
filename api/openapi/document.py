"""Generates the OpenAPI 3.1 document from operations and models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import DefsRef, GenerateJsonSchema

from api.openapi.schemas import WORD_SETS, with_comments, with_validators
from leadhand.contract.operation import JSON, ApiResponse, Operation
from leadhand.contract.operations import OPERATIONS
from leadhand.models.patterns import AGENT_SESSION, NAME, SHARED_NAME
from leadhand.models.problems import MEDIA_TYPE, Problem

Schema = dict[str, Any]

_REF = "#/components/schemas/{model}"
_CHOICE = re.compile(r"any\(([^)]*)\)")
#: Descriptions of problem responses by status.
_REFUSALS = {
    400: "The request cannot be read.",
    401: "The token is missing or invalid.",
    403: "The token does not grant this.",
    404: "The resource does not exist.",
    409: "The status of the session or plan does not allow this, or a session has its label.",
    412: "The resource has changed since it was read.",
    413: "The body is too large.",
    415: "The Content-Type is not JSON.",
    422: "Fields or parameters are invalid; each is named, with a hint.",
    429: "The token's quota is used up.",
    507: "There is no room for the artifact, or it is too large.",
    503: "Redis is unreachable, too many streams are open, or a newer API is needed; retry later.",
}
_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "Idempotency-Key": (
        "The same key with the same body returns the same session or token.",
        {"type": "string", "pattern": "^[!-~]([ -~]{0,198}[!-~])?$"},
    ),
    "If-Match": (
        "The ETag that was read; only a session's is compared weakly. `*` matches any.",
        {"type": "string"},
    ),
    "If-None-Match": (
        "The ETag of the client's copy of the session or plan.",
        {"type": "string"},
    ),
    "Last-Event-ID": (
        "The id of the last event that was received; it takes precedence over `after`.",
        {"type": "string", "pattern": "^[0-9]{1,19}-[0-9]{1,19}$"},
    ),
    "ETag": ("The current version, for If-Match.", {"type": "string"}),
    "Location": ("The path of the session.", {"type": "string"}),
    "Content-Range": ("The bytes of the response, and the size of the whole.", {"type": "string"}),
    "Content-Disposition": ("The suggested file name.", {"type": "string"}),
    "Retry-After": ("Seconds to wait before a retry.", {"type": "string"}),
}
#: Headers whose invalid values are refused; those of others are ignored.
_READ_STRICTLY = {"Idempotency-Key", "Last-Event-ID"}
_PATH_SCHEMAS: Mapping[str, Schema] = {
    "session": {"type": "string", "pattern": "^[0-9a-f]{8}$"},
    "token": {"type": "string", "pattern": "^[0-9a-f]{12}$"},
    "name": {"type": "string", "pattern": "^[^/]"},
    "task": {"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,39}$"},
    "proposal": {"type": "string", "pattern": "^[A-Za-z0-9]{1,40}$"},
    "lock": {"type": "string", "pattern": SHARED_NAME},
    "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "agent": {"type": "string", "pattern": AGENT_SESSION},
    "key": {"type": "string", "pattern": SHARED_NAME},
    "stack": {"type": "string", "pattern": NAME},
    "workflow": {"type": "string", "pattern": "^([0-9a-f]{8}|active)$"},
}


def build_document() -> Schema:
    """Generates the OpenAPI document of all operations."""
    made = _links()
    shapes = Shapes(OPERATIONS.values())
    paths: dict[str, Schema] = {}
    for one in OPERATIONS.values():
        of_path = paths.setdefault(one.path_with(lambda name, _: f"{{{name}}}"), {})
        of_path[one.method.lower()] = _operation(one, shapes, made)
    return {
        "openapi": "3.1.0",
        "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
        "info": {
            "title": "Leadhand",
            "version": version("leadhand"),
            "description": "Runs agent work on a fleet, checks it, and stores its whole history.",
        },
        "security": [{"token": []}],
        "paths": dict(sorted(paths.items())),
        "components": {
            "schemas": shapes.schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


class Shapes:
    """The schemas of all models."""

    def __init__(self, operations: Iterable[Operation[Any]]) -> None:
        asked: list[tuple[Any, str]] = [(one, "serialization") for one in (Problem, *WORD_SETS)]
        for one in operations:
            if one.body is not None:
                asked.append((one.body, "validation"))
            asked += [(s, "serialization") for says in one.responses for s in says.body.values()]
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
            name: with_validators(name, with_comments(schema, models.get(name)))
            for name, schema in sorted(_with_flows_left_open(definitions, found).items())
        }

    def reference(self, model: object) -> Schema:
        """Returns a JSON reference to the schema of a model."""
        return dict(self._found[repr(model)])


def _with_flows_left_open(
    definitions: Mapping[DefsRef, Schema], asked: Mapping[Any, Any]
) -> dict[str, Schema]:
    """Replaces the schemas of flow steps, which are published in flow.schema.json."""
    step = {"type": "object", "description": "A step, as `leadhand/flow.schema.json` has it."}
    for model, schema in definitions.items():
        if model.startswith("Flow") and "steps" in schema.get("properties", {}):
            schema["properties"]["steps"]["items"] = step
            for part in ("agents", "inputs", "commands", "markdown", "flows"):
                schema["properties"][part] = {"type": "object"}
    needed, left = set[str](), _references_in(asked)
    while left:
        name = left.pop()
        if name not in needed:
            needed.add(name)
            left |= _references_in(definitions[DefsRef(name)])
    return {str(model): found for model, found in definitions.items() if model in needed}


def _references_in(schema: object) -> set[str]:
    return set(re.findall(r"#/components/schemas/([\w.-]+)", str(schema)))


def _operation(one: Operation[Any], shapes: Shapes, made: Schema) -> Schema:
    description: Schema = {
        "operationId": one.name,
        "summary": one.summary,
        "tags": [one.name.partition(".")[0]],
        "responses": dict(sorted(_responses(one, shapes).items())),
    }
    if one.scope is None:
        description["security"] = []
    else:
        description["description"] = f"Needs the scope `{one.scope.value}`."
    if parameters := [*_path(one), *_query(one.query), *(_header(n) for n in one.headers)]:
        description["parameters"] = parameters
    if one.makes is not None:
        description["responses"][str(one.responses[0].status)]["links"] = made[one.makes]
    if one.body is not None:
        content = {JSON: {"schema": shapes.reference(one.body)}}
        description["requestBody"] = {"required": one.body_required, "content": content}
    return description


def _links() -> Schema:
    """OpenAPI links from a created resource to the operations that take its id."""
    found: Schema = {}
    for endpoint, one in sorted(OPERATIONS.items()):
        for name in one.parameters:
            parameters = {name: "$response.body#/id"}
            link = {"operationId": endpoint, "parameters": parameters}
            found.setdefault(name, {})[endpoint] = link
    return found


def _responses(one: Operation[Any], shapes: Shapes) -> Schema:
    refused = set(one.refuses)
    if one.scope is not None:
        refused |= {401, 403, 503}
    if one.parameters:
        refused.add(404)
    if one.body is not None:
        refused |= {400, 413, 415, 422}
    if one.query is not None:
        refused.add(422)
    if _READ_STRICTLY & set(one.headers):
        refused.add(400)
    problem = {MEDIA_TYPE: {"schema": shapes.reference(Problem)}}
    said = {str(says.status): _response(says, shapes) for says in one.responses}
    for status in refused:
        said[str(status)] = {"description": _REFUSALS[status], "content": problem}
        if status in (429, 503):
            said[str(status)]["headers"] = {"Retry-After": _response_header("Retry-After")}
    return said


def _response(says: ApiResponse, shapes: Shapes) -> Schema:
    description: Schema = {"description": says.what}
    if says.headers:
        description["headers"] = {
            n: {**_response_header(n), "required": True} for n in says.headers
        }
    if says.body:
        description["content"] = {
            media: {"schema": shapes.reference(m)} for media, m in says.body.items()
        }
    return description


def _response_header(name: str) -> Schema:
    what, schema = _HEADERS[name]
    return {"description": what, "schema": schema}


def _header(name: str) -> Schema:
    what, schema = _HEADERS[name]
    return {"name": name, "in": "header", "description": what, "schema": schema}


def _path(one: Operation[Any]) -> Iterable[Schema]:
    for name, kind in one.parameters.items():
        choices = _CHOICE.fullmatch(kind)
        schema = {"enum": choices[1].split(", ")} if choices else _PATH_SCHEMAS[name]
        yield {"name": name, "in": "path", "required": True, "schema": schema}


def _query(model: type[BaseModel] | None) -> Iterable[Schema]:
    if model is None:
        return
    whole = with_comments(model.model_json_schema(ref_template=_REF), model)
    for name, schema in whole.get("properties", {}).items():
        description: Schema = {"name": name, "in": "query", "schema": _plain(schema, whole)}
        if "description" in description["schema"]:
            description["description"] = description["schema"].pop("description")
        if name in whole.get("required", ()):
            description["required"] = True
        yield description


def _plain(schema: Schema, whole: Schema) -> Schema:
    """Simplifies the schema of a query parameter: no null and no references."""
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
    """All models that a type contains."""
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
    """Formats an HTTP status with its name.

    >>> status_phrase("404")
    '404 Not Found'
    """
    return f"{status} {HTTPStatus(int(status)).phrase}"
