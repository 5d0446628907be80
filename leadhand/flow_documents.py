"""Flows as people write them: steps of agents in order, with nested loops, breaks and ifs.

A loop may be written nested (`startLoop` with `steps`) or flat (`startLoop` ... `endLoop`).
Names are those of the files, in camelCase; `working_folder` is the one exception.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from leadhand import patterns
from leadhand.documents import (
    AGENT_TIMEOUT_S,
    CHECK_TIMEOUT_S,
    MAX_ITERATIONS_CEILING,
    Budget,
    Checker,
    Command,
    Name,
    Priority,
    Seconds,
    Text,
    Webhook,
    absolute,
)
from leadhand.flow_structure import Fault, faults

#: How often a loop of a flow turns at most, unless it says otherwise.
DEFAULT_CEILING = 100
#: How long a person may take to answer unless the step says otherwise.
HUMAN_TIMEOUT_S = 7 * 24 * 3600.0
#: The longest wait, for a time or for a person.
LONGEST_WAIT_S = 30 * 24 * 3600

AgentType = Annotated[str, Field(pattern=patterns.NAME)]
#: What a flow and a command are called: the stem of their file.
Stem = Annotated[str, Field(pattern=patterns.NAME)]
#: A Markdown file beneath the folder of the flows.
MarkdownFile = Annotated[str, Field(max_length=300)]
_MARKDOWN = re.compile(r"^([A-Za-z0-9_-][A-Za-z0-9_.-]*/)*[A-Za-z0-9_-][A-Za-z0-9_.-]*\.md$")
InputName = Annotated[str, Field(pattern=patterns.INPUT)]
#: Which of an agent's conversations is meant.
Identifier = Annotated[str, Field(pattern=patterns.IDENTIFIER)]
#: Tools that every worker has.
BUILT_IN_TOOLS = frozenset({"echo", "noop"})
_FUNCTION = re.compile(r"^[A-Za-z]\w*:[A-Za-z]\w*$", re.ASCII)
YesOrNo = Literal["yes", "no"]
LongSeconds = Annotated[float, Field(strict=True, gt=0, le=LONGEST_WAIT_S)]


#: As the context of a validation: how the steps lie in one another is looked at elsewhere.
ANY_STRUCTURE: dict[str, bool] = {"any structure": True}


def is_input_name(name: str) -> bool:
    """Whether an input can be called so."""
    return re.match(patterns.INPUT, name) is not None


class Written(BaseModel):
    """Frozen, strict about fields, in the names of the files."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        str_strip_whitespace=True,
        alias_generator=to_camel,
        serialize_by_alias=True,
    )


class FieldFaulty(ValueError):
    """One field does not go with the others."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class Message(Written):
    """One thing that an agent is told; its lines are joined.

    A line that is exactly `${steps.LABEL}` is what the step with that label came to;
    `${inputs.NAME}` anywhere is the run's input.
    """

    type: Literal["message"] | None = None
    role: Literal["user"]
    content: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1000)]


Messages = Annotated[tuple[Message, ...], Field(min_length=1, max_length=100)]


class _Step(Written):
    #: What people call the step, and what a resume may name.
    label: Name | None = None


class _Work(_Step):
    #: Whether the flow goes on where the step has failed (not where it was stopped).
    continue_on_failure: bool = False
    #: Where it works, beneath the working folder of the run.
    working_folder: str | None = Field(default=None, alias="working_folder", max_length=500)

    @field_validator("working_folder")
    @classmethod
    def _beneath(cls, value: str | None) -> str | None:
        parts = value.split("/") if value is not None else []
        if value is not None and (value.startswith("/") or ".." in parts or "\0" in value):
            raise ValueError(
                f"it is {value!r}; give a path beneath the run's own folder, without '..'"
            )
        return value


class _Asking(_Work):
    #: Who is asked: a name of agents.toml, or one that the flow's `agents` leads to one.
    agent_type: AgentType
    #: Which of its conversations goes on.
    identifier: Identifier
    model: Name | None = None
    timeout_seconds: Seconds = AGENT_TIMEOUT_S


class LlmStep(_Asking):
    """Tells an agent something, message after message, in its conversation."""

    type: Literal["llm"]
    messages: Messages | None = None
    #: A file beneath the folder of the flows that says it instead: one message.
    markdown_file: MarkdownFile | None = None

    @field_validator("markdown_file")
    @classmethod
    def _beneath_the_flows(cls, value: str | None) -> str | None:
        if value is not None and not _MARKDOWN.match(value):
            raise ValueError(
                f"it is {value!r}; give the path of a .md file beneath the folder of the flows,"
                " of letters, digits, . _ - and /, without '..'"
            )
        return value

    @model_validator(mode="after")
    def _one_of_both(self) -> LlmStep:
        if self.messages is not None and self.markdown_file is not None:
            raise FieldFaulty("markdownFile", "there are messages too; give one of both")
        if self.messages is None and self.markdown_file is None:
            raise FieldFaulty("messages", "it is missing; give messages or a markdownFile")
        return self


class CommandStep(_Asking):
    """Tells an agent a named list of messages: `commands/NAME.json` or `.md` beside the flows."""

    type: Literal["command"]
    command_name: Stem


class Decision(_Work):
    """A yes or no: an agent's, or that of a script which prints `{"answer": "yes"}` or "no"."""

    agent_type: AgentType | None = None
    identifier: Identifier | None = None
    question: Text | None = None
    model: Name | None = None
    #: A shell command; what it prints decides, and anything else fails the step.
    command: Command | None = None
    timeout_seconds: Seconds = CHECK_TIMEOUT_S

    @model_validator(mode="after")
    def _who_decides(self) -> Decision:
        asked = {"agentType": self.agent_type, "identifier": self.identifier,
                 "question": self.question}  # fmt: skip
        given = [name for name, value in asked.items() if value is not None]
        if self.command is not None and (given or self.model is not None):
            other = (given or ["model"])[0]
            raise FieldFaulty("command", f"there is {other} too; let a script or an agent decide")
        missing = [name for name in asked if name not in given]
        if self.command is None and missing:
            raise FieldFaulty(
                missing[0],
                "it is missing; give agentType, identifier and question, or a command that decides",
            )
        return self


class BreakStep(Decision):
    """Leaves the innermost loop where the answer is `breakOn`."""

    type: Literal["break"]
    break_on: YesOrNo


class ContinueStep(Decision):
    """Passes over the rest of the iteration where the answer is `continueOn`."""

    type: Literal["continue"]
    continue_on: YesOrNo


class IfStep(Decision):
    """Runs `then` where the answer is yes, `else` where it is no."""

    type: Literal["if"]
    then: Annotated[tuple[FlowStep, ...], Field(min_length=1, max_length=1000)]
    otherwise: tuple[FlowStep, ...] = Field(default=(), alias="else", max_length=1000)


class StartLoop(_Step):
    """Begins a loop: of its `steps`, or of all up to its `endLoop` where it has none."""

    type: Literal["startLoop"]
    steps: Annotated[tuple[FlowStep, ...], Field(max_length=1000)] | None = None
    #: Reached, the loop ends and the flow fails.
    max_iterations: Annotated[int, Field(strict=True, le=MAX_ITERATIONS_CEILING)] = DEFAULT_CEILING

    @field_validator("max_iterations")
    @classmethod
    def _turns(cls, value: int) -> int:
        if value < 1:
            raise ValueError(
                f"it is {value}; a loop of a flow has a ceiling of 1 to {MAX_ITERATIONS_CEILING}"
            )
        return value


class EndLoop(_Step):
    """Ends the loop that began last, where loops are written flat."""

    type: Literal["endLoop"]


class ResetStep(_Step):
    """Forgets a conversation: who speaks in it next begins a new one."""

    type: Literal["reset"]
    agent_type: AgentType
    identifier: Identifier


class SubflowStep(_Step):
    """Runs other flows side by side and goes on when all have ended, however they did."""

    type: Literal["subflow"]
    flow_names: Annotated[tuple[Stem, ...], Field(min_length=1, max_length=50)]
    inputs: dict[InputName, Text] = {}

    @field_validator("flow_names")
    @classmethod
    def _differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if value.count(name) > 1:
                raise ValueError(f"{name!r} stands twice; name each flow once")
        return value


class WaitStep(_Step):
    """Lets time go by; no worker is held, and no restart begins it anew."""

    type: Literal["wait"]
    seconds: LongSeconds


class HumanStep(_Work):
    """Asks a person and waits for the answer; an agent may be told it."""

    type: Literal["human"]
    question: Text
    #: Who is told the answer, as an instruction; nobody where absent.
    agent_type: AgentType | None = None
    identifier: Identifier | None = None
    #: After it the step has failed.
    timeout_seconds: LongSeconds = HUMAN_TIMEOUT_S

    @model_validator(mode="after")
    def _both_or_none(self) -> HumanStep:
        if (self.agent_type is None) != (self.identifier is None):
            missing = "agentType" if self.agent_type is None else "identifier"
            raise FieldFaulty(missing, "it is missing; give agentType and identifier, or neither")
        return self


class CheckStep(_Work):
    """Judges the work so far; the step fails unless the checker accepts."""

    type: Literal["check"]
    checker: Checker


class ToolStep(_Work):
    """Uses a named tool of the worker."""

    type: Literal["tool"]
    #: `module:function` of the workers' folders of tools; or `echo`, which gives its arguments
    #: back, or `noop`, which gives nothing.
    tool: Annotated[str, Field(max_length=200)]
    arguments: dict[str, JsonValue] = {}
    timeout_seconds: Seconds = 60.0
    #: A function that takes milliseconds and may share its process with other calls.
    quick: bool = False

    @field_validator("tool")
    @classmethod
    def _named(cls, value: str) -> str:
        if value not in BUILT_IN_TOOLS and not _FUNCTION.match(value):
            raise ValueError(f"it is {value!r}; give 'module:function', 'echo' or 'noop'")
        return value


FlowStep: TypeAlias = Annotated[
    LlmStep | CommandStep | BreakStep | ContinueStep | IfStep | StartLoop | EndLoop | ResetStep
    | SubflowStep | WaitStep | HumanStep | CheckStep | ToolStep,
    Field(discriminator="type"),
]  # fmt: skip
IfStep.model_rebuild()
StartLoop.model_rebuild()


class FlowDefinition(Written):
    """What a flow's file says."""

    #: Where editors find what may stand here; it means nothing to us.
    schema_: str | None = Field(default=None, alias="$schema", exclude=True)
    description: str = Field(default="", max_length=2000)
    steps: Annotated[tuple[FlowStep, ...], Field(max_length=1000)]
    #: Where an agentType is no name of agents.toml: which one it stands for; `*` is all others.
    agents: dict[AgentType | Literal["*"], AgentType] = {}
    #: What a run may be given: the value unless it is, null where it must be.
    inputs: dict[InputName, Annotated[str, Field(max_length=200_000)] | None] = {}
    #: How often an agent is asked in all where it fails; LEADHAND_ATTEMPTS unless given.
    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    #: What a run may use in all.
    budget: Budget = Budget()

    @model_validator(mode="after")
    def _well_formed(self, info: ValidationInfo) -> FlowDefinition:
        if info.context is ANY_STRUCTURE:
            return self
        fault = next(faults(self), None)
        if fault is not None:
            raise FlowMalformed(fault)
        return self


class FlowMalformed(ValueError):
    """The steps do not fit together."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return f"{self.fault.path}: {self.fault.message}"


class FlowRun(BaseModel):
    """How a flow of the catalog is run."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    #: Where it works: an absolute path.
    working_folder: str | None = None
    #: What people call the session; `Flow: NAME` unless given.
    title: Name | None = None
    inputs: dict[InputName, Annotated[str, Field(max_length=200_000)]] = {}
    #: Who works in place of an agentType; `*` is all others.
    agents: dict[AgentType | Literal["*"], AgentType] = {}
    priority: Priority = "normal"
    place: Name | None = None
    webhook: Webhook | None = None
    #: What it may use; a limit that the file names too is this one.
    budget: Budget = Budget()

    @field_validator("working_folder")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value, name="working_folder")


#: A run with nothing but what the file says.
NO_WISHES = FlowRun()


class FlowDocument(FlowDefinition):
    """A flow to run, with all that it needs of other files."""

    kind: Literal["flow"] = "flow"
    name: Stem = "flow"
    #: What people call the session; `Flow: NAME` unless given.
    label: Name | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    place: Name | None = None
    webhook: Webhook | None = None
    #: Of `command` steps, by name; those that are missing come from the catalog.
    commands: dict[Stem, Messages] = {}
    #: Of `markdownFile`s, by path; the same.
    markdown: dict[MarkdownFile, Messages] = {}
    #: Of `subflow` steps, by name; the same.
    flows: dict[Stem, FlowDefinition] = {}

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)
