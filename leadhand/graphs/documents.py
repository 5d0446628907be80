"""The models of graph documents, which clients submit to the API."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    field_validator,
    model_validator,
)

from leadhand.graphs.called_sessions import CalledSession, agent_texts
from leadhand.graphs.faults import GraphMalformed, faults_of
from leadhand.graphs.input_schema import declare_inputs, input_faults
from leadhand.graphs.references import NAME_CHARACTERS, bound_references, require_list
from leadhand.graphs.retry_errors import check_error_name
from leadhand.models import patterns
from leadhand.models.documents import (
    Budget,
    Document,
    LeaveOut,
    Place,
    Priority,
    Webhook,
    absolute,
    without_zero,
)
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.tool_names import check_graph_tool_name
from leadhand.models.validation_messages import NAMED

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
        faults = (*of_inputs, *islice(faults_of(self.steps, self.inputs), NAMED))
        if faults:
            raise GraphMalformed(faults)
        return self
