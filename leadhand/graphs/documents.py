"""The models of graph documents, which clients submit to the API."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from leadhand.graphs.faults import GraphFault, GraphMalformed, check_error_name, faults_of
from leadhand.graphs.values import require_list
from leadhand.models import patterns
from leadhand.models.documents import (
    Budget,
    Document,
    LeaveOut,
    LoopDocument,
    PhaseDocument,
    Place,
    Priority,
    Webhook,
    WorkflowDocument,
    absolute,
    without_zero,
)
from leadhand.models.json_schema import (
    DEEPEST,
    KEYWORDS,
    Judge,
    TooLarge,
    fits,
    keyword_errors,
    members,
    properties_of,
    schema_of,
)
from leadhand.models.references import NAME_CHARACTERS, bound_references
from leadhand.models.session_environment import FIELDS, WithEnvironment
from leadhand.models.suggestions import listed, nearest
from leadhand.models.tool_schemas import check_graph_tool_name
from leadhand.models.validation_messages import NAMED

_Schema = dict[str, JsonValue]
#: The most schemas in the schema of a document's inputs.
_MOST = 300
#: Fields that are those of the graph for all sessions of its steps.
_OF_THE_GRAPH = ("cwd", "place", "priority", "webhook", *sorted(FIELDS))
_PART = re.compile(r"[^.\[\]]+")
#: A step's default timeout, in seconds.
TOOL_TIMEOUT_S = 60.0
#: The most steps of a graph, and the most names in all their `depends_on`.
MAX_STEPS, MAX_DEPENDENCIES = 2_000, 50_000
#: As the names of documents; the texts of arguments and inputs are kept as they are.
StepName = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=NAME_CHARACTERS),
    AfterValidator(without_zero),
]
InputName = Annotated[str, Field(pattern=patterns.INPUT)]
Expression = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=2_000)
]
ForEach = Annotated[Expression | list[JsonValue], BeforeValidator(require_list)]
ToolName = Annotated[str, Field(max_length=200), AfterValidator(check_graph_tool_name)]
ErrorName = Annotated[str, AfterValidator(check_error_name)]
Seconds = Annotated[float, Field(strict=True, gt=0, le=30 * 24 * 3600)]
#: Fields that a step with a session does not have, and what to write instead.
OF_A_TOOL = {
    "arguments": "write references in the tasks of the session",
    "expect": "the checkers of the session judge its work",
    **dict.fromkeys(
        ("retries", "backoff_s", "max_backoff_s", "jitter", "retry_on"),
        "give the session more iterations, or its phase `on_fail`",
    ),
}


def declare_inputs(given: Any) -> Any:
    """Returns a document with all inputs its JSON Schema declares; absent ones get a default."""
    if not isinstance(given, dict):
        return given
    inputs, schema = given.get("inputs", {}), given.get("input_schema")
    if not isinstance(inputs, dict) or not isinstance(schema, dict):
        return given
    declared = {name: _default_of(one) for name, one in properties_of(schema).items()}
    return {**given, "inputs": {**declared, **inputs}}


def accepts_null(schema: JsonValue, name: str) -> bool:
    """Whether the schema of an input permits null; False for an input that it does not have."""
    found = schema_of(schema, name)
    return bool(found) and fits(found, None)


def input_faults(schema: _Schema | None, inputs: Mapping[str, JsonValue]) -> Iterator[GraphFault]:
    """Yields the errors of an input schema, or if it is valid, those of the inputs' values."""
    if schema is None:
        return
    found = [*_faults_of_whole(schema)] or list(_schema_faults(schema, "input_schema", 0))
    yield from found or _faults_of_values(schema, inputs)


def _faults_of_whole(schema: _Schema) -> Iterator[GraphFault]:
    if sum(1 for _ in islice(_schemas(schema, 0), _MOST + 1)) > _MOST:
        hint = f"let it have at most {_MOST} schemas, with those of its properties"
        yield GraphFault("input_schema", "it is too large", hint)
    if schema.get("type", "object") != "object":
        hint = 'write {"type": "object", "properties": {...}}'
        yield GraphFault("input_schema.type", "inputs are an object", hint)


def _faults_of_values(schema: _Schema, inputs: Mapping[str, JsonValue]) -> Iterator[GraphFault]:
    judge = Judge()
    for name, value in inputs.items():
        one = schema_of(schema, name)
        if not one and schema.get("additionalProperties") is False:
            hint = f"there are: {listed(properties_of(schema))}"
            yield GraphFault(f"inputs.{name}", "the schema has no such input", hint)
        if not one or value is None:
            continue
        try:
            misfits = judge.misfits(one, value)
        except TooLarge:
            hint = "shorten it, or leave its parts out of the schema"
            yield GraphFault(f"inputs.{name}", "it is too large to be compared", hint)
            return
        for where, why in misfits:
            hint = "give a value that fits the schema"
            yield GraphFault(f"inputs.{name}{where}", why, hint)


def _default_of(schema: JsonValue) -> JsonValue:
    return schema.get("default") if isinstance(schema, dict) else None


def _schema_faults(schema: JsonValue, path: str, depth: int) -> Iterator[GraphFault]:
    """Yields the keywords that are unknown, and what JSON Schema itself refuses."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > DEEPEST:
        yield GraphFault(path, "it is not a schema", "give an object with `type`")
        return
    for name in schema:
        if name not in KEYWORDS:
            near = nearest(name, KEYWORDS)
            hint = f"did you mean {near!r}?" if near else "leave it out"
            yield GraphFault(f"{path}.{name}", "this keyword is not supported", hint)
    for where, why in keyword_errors(schema):
        yield GraphFault(f"{path}{where}", why, "see json-schema.org")
    for where, one in members(schema):
        yield from _schema_faults(one, path + where, depth + 1)


def _schemas(schema: JsonValue, depth: int) -> Iterator[JsonValue]:
    yield schema
    if isinstance(schema, dict) and depth <= DEEPEST:
        for _, one in members(schema):
            yield from _schemas(one, depth + 1)


def _check_fields(document: LoopDocument | WorkflowDocument) -> LoopDocument | WorkflowDocument:
    for name in _OF_THE_GRAPH:
        # Clients send fields that have their default, too.
        if getattr(document, name) != type(document).model_fields[name].get_default():
            raise ValueError(f"{name} is that of the graph; remove it here, and give it there")
    return document


def _in_folder_of_graph(
    given: object, handler: ValidatorFunctionWrapHandler
) -> LoopDocument | WorkflowDocument:
    """Validates a session as one with a folder, which is the graph's."""
    has_none = isinstance(given, dict) and given.get("cwd") is None
    document: LoopDocument | WorkflowDocument = handler(
        {**given, "cwd": "/"} if has_none and isinstance(given, dict) else given
    )
    if has_none:
        document = document.model_copy(update={"cwd": None})
        document.model_fields_set.discard("cwd")
    return _check_fields(document)


def _needs_folder(document: LoopDocument | WorkflowDocument) -> bool:
    loops = (document,) if isinstance(document, LoopDocument) else document.phases
    alone = any(one.isolated or one.clean for loop in loops for one in loop.checkers)
    return alone or any(loop.protected for loop in loops)


#: The document of a session that a step starts, in the folder and at the place of the graph.
CalledSession: TypeAlias = Annotated[
    Annotated[LoopDocument | WorkflowDocument, Field(discriminator="kind")],
    WrapValidator(_in_folder_of_graph),
]


def agent_texts(document: LoopDocument | WorkflowDocument) -> dict[str, JsonValue]:
    """Returns the texts for agents in a document by their paths: they may hold references.

    A command holds none: what a step returned could change what the command does.

    >>> given = {"task": "Mend ${item}", "checkers": ["make test", "agent: Is ${item} mended?"]}
    >>> agent_texts(LoopDocument.model_validate(given))
    {'task': 'Mend ${item}', 'checkers[1].prompt': 'Is ${item} mended?'}
    """
    return dict(_texts(document))


def _texts(document: LoopDocument | WorkflowDocument) -> Iterator[tuple[str, JsonValue]]:
    loops: dict[str, LoopDocument | PhaseDocument] = (
        {"": document}
        if isinstance(document, LoopDocument)
        else {f"phases[{number}].": phase for number, phase in enumerate(document.phases)}
    )
    for path, loop in loops.items():
        yield f"{path}task", loop.task
        for number, checker in enumerate(loop.checkers):
            if checker.prompt is not None:
                yield f"{path}checkers[{number}].prompt", checker.prompt


def with_texts(document: JsonValue, texts: Mapping[str, str]) -> JsonValue:
    """Returns a copy of the JSON of a document with these texts at their paths.

    >>> with_texts({"task": "t", "checkers": [{"prompt": "p"}]}, {"checkers[0].prompt": "q"})
    {'task': 't', 'checkers': [{'prompt': 'q'}]}
    """
    for path, text in texts.items():
        document = _with_text(document, _PART.findall(path), text)
    return document


def _with_text(here: JsonValue, parts: list[str], text: str) -> JsonValue:
    if not parts:
        return text
    first, *rest = parts
    if isinstance(here, list):
        at = int(first)
        return [*here[:at], _with_text(here[at], rest, text), *here[at + 1 :]]
    fields = here if isinstance(here, dict) else {}
    return {**fields, first: _with_text(fields.get(first), rest, text)}


class GraphStep(Document):
    """A step that calls a tool, or that runs a session."""

    model_config = ConfigDict(str_strip_whitespace=False)

    #: Other steps and people refer to it by this name.
    name: StepName
    #: `module:function` in the workers' tool folders; a tool of tools.toml, `SERVER.TOOL` of an MCP
    #: server; `echo`, which returns its arguments, or `noop`, which returns nothing;
    #: or `local:NAME`, which the submitter carries out itself.
    tool: ToolName | None = None
    #: In place of a tool: a loop or a workflow, which runs as a child session. Its tasks and the
    #: prompts of its checkers may hold references; its commands may not.
    session: CalledSession | None = None
    #: May hold references: `${search.papers}`, `Title: ${paper.title ?? "none"}`.
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    #: Steps that end before this one starts, besides those that it refers to.
    depends_on: Annotated[tuple[StepName, ...], Field(max_length=MAX_STEPS)] = ()
    #: A reference, or `not` and a reference; the step is skipped unless its value is true.
    when: Expression | None = None
    #: A list, or a reference to one; the tool is called once for each `${item}`.
    for_each: ForEach | None = None
    #: The most items of the for_each that run at once; all of them if it is left out.
    at_once: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None
    #: The step runs once all steps that it waits for have ended: if all of them succeeded (`all`),
    #: or if one did (`any`), otherwise it is skipped; in whatever way (`ended`), also if one of
    #: them fails the session; or however the session ends or stops (`always`), like a finally.
    #: By default in whatever way, unless the session fails.
    join: Literal["ended", "all", "any", "always"] | None = None
    #: Whether its failure ends the session.
    critical: bool = True
    timeout_s: Seconds = TOOL_TIMEOUT_S
    #: How often a failed call is repeated.
    retries: Annotated[int, Field(strict=True, ge=0, le=100)] = 0
    #: Seconds before the first repetition; each further one waits twice as long.
    backoff_s: Annotated[float, Field(strict=True, ge=0, le=3600)] = 1.0
    #: The most seconds before a repetition.
    max_backoff_s: Annotated[float, Field(strict=True, ge=0, le=24 * 3600)] = 60.0
    #: The share of each wait that is random, so that many calls do not come at once.
    jitter: Annotated[float, Field(strict=True, ge=0, le=1)] = 0.5
    #: The errors that are repeated; if the list is empty, all but HTTP statuses such as 404 that
    #: another call does not change. The name of an exception's class or of a class above it,
    #: `exit 75`, `http 503`, `http 5xx`, `timeout` or `busy`.
    retry_on: Annotated[tuple[ErrorName, ...], Field(max_length=50)] = ()
    #: The call fails unless its result is an object whose `success` is true.
    expect: Literal["success"] | None = None
    description: Annotated[str, Field(max_length=2_000)] | None = None

    @model_validator(mode="after")
    def _calls_one(self) -> GraphStep:
        if (self.tool is None) == (self.session is None):
            raise ValueError("give exactly one of tool, session")
        for name in OF_A_TOOL if self.session is not None else ():
            field = type(self).model_fields[name]
            # Clients send fields that have their default, too.
            if getattr(self, name) != field.get_default(call_default_factory=True):
                raise ValueError(f"{name} belongs to a tool; {OF_A_TOOL[name]}")
        return self

    @property
    def called(self) -> str:
        """The name of the tool that the step calls, or the kind of the session that it runs."""
        return str(self.tool) if self.session is None else self.session.kind

    @property
    def values(self) -> dict[str, JsonValue]:
        """The values that may hold references: arguments by name, or session texts by path."""
        return self.arguments if self.session is None else agent_texts(self.session)

    @property
    def field_of_values(self) -> str:
        """The name of the field with the step's values, `arguments` or `session`, for errors."""
        return "arguments" if self.session is None else "session"


class GraphDocument(Document, WithEnvironment):
    """Steps that call tools; a step runs once all steps that it depends on have ended."""

    model_config = ConfigDict(str_strip_whitespace=False)

    kind: Literal["graph"] = "graph"
    name: StepName = "graph"
    description: Annotated[str, Field(max_length=20_000)] | None = None
    #: The values of `${inputs.NAME}`; null for one that each run must give.
    inputs: dict[InputName, JsonValue] = Field(default_factory=dict)
    #: A JSON Schema of type `object` that the inputs must fit; its defaults are those of inputs.
    input_schema: dict[str, JsonValue] | None = None
    steps: Annotated[tuple[GraphStep, ...], Field(min_length=1, max_length=MAX_STEPS)]
    label: StepName | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    #: Untracked files that are no work; see the field of a loop.
    leave_out: LeaveOut | None = None
    place: Place | None = None
    webhook: Webhook | None = None
    budget: Budget = Budget()

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)

    @field_validator("steps")
    @classmethod
    def _depend_on_few(cls, value: tuple[GraphStep, ...]) -> tuple[GraphStep, ...]:
        count = sum(len(step.depends_on) for step in value)
        if count > MAX_DEPENDENCIES:
            raise ValueError(
                f"they have {count} names in depends_on together; a graph has at most"
                f" {MAX_DEPENDENCIES}; let dense layers meet in one step between them"
            )
        return value

    @model_validator(mode="before")
    @classmethod
    def _take_defaults(cls, given: object) -> object:
        bound_references(given)
        return declare_inputs(given)

    @model_validator(mode="after")
    def _well_formed(self) -> GraphDocument:
        """Reports all errors of the structure: there are some only if all fields are valid."""
        of_inputs = islice(input_faults(self.input_schema, self.inputs), NAMED)
        of_steps = chain(faults_of(self.steps, self.inputs), self._faults_of_folder())
        faults = (*of_inputs, *islice(of_steps, NAMED))
        if faults:
            raise GraphMalformed(faults)
        return self

    def _faults_of_folder(self) -> Iterator[GraphFault]:
        for number, step in enumerate(self.steps):
            if self.cwd is None and step.session is not None and _needs_folder(step.session):
                why = "its protected files, and isolated or clean checkers, need a working folder"
                yield GraphFault(f"steps[{number}].session", why, "give the graph a `cwd`")
