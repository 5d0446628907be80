"""Generates the OpenAPI 3.1 document from operations and models."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import cache
from http import HTTPStatus
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import DefsRef, GenerateJsonSchema

from app.security.api_tokens import Scope
from leadhand.contract.operation import JSON, ApiResponse, Operation
from leadhand.contract.operations import OPERATIONS
from leadhand.errors import StoreState
from leadhand.models.patterns import AGENT_SESSION, NAME, SHARED_NAME
from leadhand.models.problems import MEDIA_TYPE, Problem
from leadhand.models.verdicts import ReasonCode

Schema = dict[str, Any]
#: Models of which exactly one of these fields must be set.
_ONE_OF = {
    "Doer": ("agent", "command", "callable"),
    "Checker": ("command", "prompt", "callable", "tool", "rubric"),
}
#: Fields that are allowed with some of the choices only.
_GOES_WITH = {"agent": ("prompt", "rubric"), "model": ("prompt", "rubric")}
#: Patterns that validators require.
_PATTERNS = {
    "PhaseDocument": {"on_fail": "^(stop|continue|retry:([1-9][0-9]{0,2}))$"},
    "LoopDocument": {"cwd": "^/"},
    "WorkflowDocument": {"cwd": "^/"},
    "PlanDocument": {"cwd": "^/"},
    "GraphDocument": {"cwd": "^/"},
}
#: Members of a union that is discriminated by `op`.
_OPERATIONS = {"AddTask", "ChangeTask", "DropTask", "MoveTask", "RetryTask"}
_SOME_TEXT = r"\S"
#: Closed sets of words. Clients read them as text, because a newer server may send others.
_WORDS: Mapping[str, Mapping[str, type[StrEnum]]] = {
    "Reason": {"code": ReasonCode},
    "TokenView": {"scopes": Scope},
    "NewToken": {"scopes": Scope},
}
#: The same where the words have no schema of their own.
_INLINE_WORDS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "StoreView": {"state": get_args(StoreState)},
}
#: The sets of such words; each has a schema of its own.
WORD_SETS = (ReasonCode, Scope)
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


def with_comments(schema: Schema, model: type[BaseModel] | None) -> Schema:
    """Returns a schema in which each field's `#:` comment in the source is its description."""
    schema = {name: value for name, value in schema.items() if name != "title"}
    if model is None:
        return schema
    comments = _comments(model)
    properties = schema.get("properties", {})
    schema["properties"] = {
        name: _text(_without_title(one), model)
        | ({"description": comments[name]} if name in comments else {})
        for name, one in properties.items()
    }
    return schema


def with_validators(name: str, schema: Schema) -> Schema:
    """Returns a schema with the rules that a model's validators enforce, by the model's name."""
    if name in _ONE_OF:
        schema = _one_of(schema, _ONE_OF[name], goes_with=_GOES_WITH if name == "Checker" else {})
    if name in ("LoopDocument", "WorkflowDocument", "GraphDocument", "PlanDocument"):
        schema = schema | {"required": ["kind", *schema["required"]]}
    _narrow(name, schema.get("properties", {}))
    if name in _OPERATIONS:
        schema = schema | {"required": ["op", *schema["required"]]}
    if name == "Problem":
        plan = {"anyOf": [{"$ref": "#/components/schemas/PlanView"}, {"type": "null"}]}
        schema["properties"]["plan"] |= plan
    if name == "LimitBody":
        limits = {"concurrency": {"type": "integer"}, "per_minute": {"type": "number"}}
        either = [{"properties": {n: one}, "required": [n]} for n, one in limits.items()]
        schema = schema | {"anyOf": either}
    if name == "Meant":
        schema = _require_one_field(schema)
    if name == "Checker":
        text = {"type": "string", "pattern": _SOME_TEXT, "maxLength": 200_000}
        schema = {"anyOf": [schema, {**text, "description": "A command, or `agent: ...`."}]}
    return schema


def _narrow(name: str, properties: Schema) -> None:
    """Add patterns and enums to the schemas of a model's fields."""
    for field, pattern in _PATTERNS.get(name, {}).items():
        properties[field] = _with_pattern(properties[field], pattern)
    for field, words in _WORDS.get(name, {}).items():
        properties[field] = _of_words(properties[field], words)
    for field, texts in _INLINE_WORDS.get(name, {}).items():
        properties[field] |= {"enum": [*texts]}


def _of_words(schema: Schema, words: type[StrEnum]) -> Schema:
    """The schema of a text, or list of texts, with only these words."""
    if schema.get("type") == "array":
        return schema | {"items": _of_words(schema["items"], words)}
    return {"$ref": f"#/components/schemas/{words.__name__}"}


def _with_pattern(schema: Schema, pattern: str) -> Schema:
    if "anyOf" not in schema:
        return schema | {"pattern": pattern}
    texts = [o | {"pattern": pattern} if o.get("type") == "string" else o for o in schema["anyOf"]]
    return schema | {"anyOf": texts}


def _require_one_field(schema: Schema) -> Schema:
    comments = {name: _never_null(one) for name, one in schema["properties"].items()}
    comments["status"] = comments["status"] | {"minItems": 1}
    return schema | {"properties": comments, "minProperties": 1}


def _one_of(
    schema: Schema, choices: tuple[str, ...], *, goes_with: Mapping[str, tuple[str, ...]]
) -> Schema:
    """One alternative per choice, in which the others are null or absent."""
    properties: Schema = schema["properties"]
    alternatives = []
    for chosen in choices:
        own = {
            name: _never_null(one) if name == chosen else {"type": "null"}
            if name in choices or chosen not in goes_with.get(name, choices) else one
            for name, one in properties.items()
        }  # fmt: skip
        alternatives.append(
            {"type": "object", "properties": own, "required": [chosen],
             "additionalProperties": False}
        )  # fmt: skip
    return {"oneOf": alternatives, "description": schema.get("description", "")}


def _never_null(schema: Schema) -> Schema:
    others = [one for one in schema.get("anyOf", []) if one.get("type") != "null"]
    kept = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return kept | others[0] if others else schema


def _text(schema: Schema, model: type[BaseModel]) -> Schema:
    """Requires a non-blank text if the model strips white space."""
    if not model.model_config.get("str_strip_whitespace"):
        return schema
    inner: Schema = {k: _text(v, model) for k, v in schema.items() if k == "items"}
    inner |= {k: [_text(one, model) for one in v] for k, v in schema.items() if k == "anyOf"}
    wanted = schema.get("type") == "string" and schema.get("minLength") and "pattern" not in schema
    return schema | inner | ({"pattern": _SOME_TEXT} if wanted else {})


def _without_title(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name != "title"}


def _comments(model: type[BaseModel]) -> dict[str, str]:
    """The `#:` comments of the fields of a model and its base classes."""
    found: dict[str, str] = {}
    for one in reversed(model.__mro__):
        if issubclass(one, BaseModel) and one is not BaseModel:
            found |= _own_comments(one)
    return found


def _own_comments(model: type[BaseModel]) -> Mapping[str, str]:
    return _comments_in(model.__module__).get(model.__qualname__, {})


@cache
def _comments_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """The `#:` comments of the fields of a module's classes, by class and field.

    Each module is parsed once: `inspect.getsource` parses it for every class.
    """
    path = getattr(sys.modules.get(module), "__file__", None)
    if path is None:
        return {}
    text = Path(path).read_text()
    lines = text.splitlines()
    return {
        node.name: dict(_comments_of(node, lines))
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef)
    }


def _comments_of(node: ast.ClassDef, lines: list[str]) -> Iterator[tuple[str, str]]:
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            above = _above(lines[: member.lineno - 1])
            if above:
                yield member.target.id, above


def _above(lines: list[str]) -> str:
    comments: list[str] = []
    for line in reversed(lines):
        if not line.strip().startswith("#: "):
            break
        comments.insert(0, line.strip().removeprefix("#: "))
    return " ".join(comments)


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
