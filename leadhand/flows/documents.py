"""The models of flow files: steps of agents in order, with nested loops, breaks and ifs.

A loop may be written nested (`startLoop` with `steps`) or flat (`startLoop` ... `endLoop`).
Names are those of the files, in camelCase; `working_folder` is the one exception.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    ValidationInfo,
    field_validator,
    model_validator,
)

from leadhand.flows.structure import (
    _MARKDOWN,
    DEFAULT_CEILING,
    HUMAN_TIMEOUT_S,
    LONGEST_WAIT_S,
    AgentType,
    FieldFaulty,
    FlowMalformed,
    LabelledStep,
    MarkdownFile,
    Stem,
    ToolStep,
    WorkStep,
    Written,
    structural_faults,
)
from leadhand.flows.typed_inputs import with_texts
from leadhand.graphs.documents import GraphDocument
from leadhand.models import patterns
from leadhand.models.documents import (
    AGENT_TIMEOUT_S,
    CHECK_TIMEOUT_S,
    MAX_ITERATIONS_CEILING,
    Budget,
    Checker,
    Command,
    LeaveOut,
    LoopDocument,
    Name,
    Priority,
    Protected,
    Seconds,
    Text,
    Webhook,
    WorkflowDocument,
    WorktreeOptions,
    absolute,
)
from leadhand.models.forms import AnswerRules, Form, GivenAnswer, Options, fit
from leadhand.models.plans import PlanDocument
from leadhand.models.references import bound_references
from leadhand.models.session_environment import WithEnvironment

InputName = Annotated[str, Field(pattern=patterns.INPUT)]
#: The identifier of an agent's conversation.
Identifier = Annotated[str, Field(pattern=patterns.IDENTIFIER)]
YesOrNo = Literal["yes", "no"]
LongSeconds = Annotated[float, Field(strict=True, gt=0, le=LONGEST_WAIT_S)]


#: A validation context that skips the check of how steps are nested.
ANY_STRUCTURE: dict[str, bool] = {"any structure": True}


def is_input_name(name: str) -> bool:
    """Whether the text is a valid name of an input."""
    return re.match(patterns.INPUT, name) is not None


class Message(Written):
    """One message to an agent; its lines are joined.

    A line that is exactly `${steps.LABEL}` is what the step with that label came to;
    `${inputs.NAME}` anywhere is the run's input.
    """

    type: Literal["message"] | None = None
    role: Literal["user"]
    content: Annotated[tuple[Text, ...], Field(min_length=1, max_length=1000)]


Messages = Annotated[tuple[Message, ...], Field(min_length=1, max_length=100)]


class _Asking(WorkStep):
    #: The agent: a name in agents.toml, or one that the flow's `agents` maps to one.
    agent_type: AgentType
    #: The conversation to continue.
    identifier: Identifier
    model: Name | None = None
    timeout_seconds: Seconds = AGENT_TIMEOUT_S


class LlmStep(_Asking):
    """Sends messages to an agent, one after the other, in a conversation."""

    type: Literal["llm"]
    messages: Messages | None = None
    #: A file beneath the folder of the flows with the message, instead of `messages`.
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
            raise FieldFaulty("markdownFile", "messages are given too; give only one of the two")
        if self.messages is None and self.markdown_file is None:
            raise FieldFaulty("messages", "it is missing; give messages or a markdownFile")
        return self


class CommandStep(_Asking):
    """Sends a named list of messages: `commands/NAME.json` or `.md` beside the flows."""

    type: Literal["command"]
    command_name: Stem


class Decision(WorkStep):
    """A yes-or-no decision of an agent, or of a script that prints `{"answer": "yes"}` or "no"."""

    agent_type: AgentType | None = None
    identifier: Identifier | None = None
    question: Text | None = None
    model: Name | None = None
    #: A shell command whose output decides; any other output fails the step.
    command: Command | None = None
    timeout_seconds: Seconds = CHECK_TIMEOUT_S

    @model_validator(mode="after")
    def _who_decides(self) -> Decision:
        asked = {"agentType": self.agent_type, "identifier": self.identifier,
                 "question": self.question}  # fmt: skip
        given = [name for name, value in asked.items() if value is not None]
        if self.command is not None and (given or self.model is not None):
            other = (given or ["model"])[0]
            raise FieldFaulty("command", f"{other} is given too; give either a script or an agent")
        missing = [name for name in asked if name not in given]
        if self.command is None and missing:
            raise FieldFaulty(
                missing[0],
                "it is missing; give agentType, identifier and question, or a command",
            )
        return self


class BreakStep(Decision):
    """Leaves the innermost loop if the answer is `breakOn`."""

    type: Literal["break"]
    break_on: YesOrNo


class ContinueStep(Decision):
    """Skips the rest of the iteration if the answer is `continueOn`."""

    type: Literal["continue"]
    continue_on: YesOrNo


class IfStep(Decision):
    """Runs `then` if the answer is yes, `else` if it is no."""

    type: Literal["if"]
    then: Annotated[tuple[FlowStep, ...], Field(min_length=1, max_length=1000)]
    otherwise: tuple[FlowStep, ...] = Field(default=(), alias="else", max_length=1000)


class StartLoop(LabelledStep):
    """Starts a loop over its `steps`, or else over the steps up to its `endLoop`."""

    type: Literal["startLoop"]
    steps: Annotated[tuple[FlowStep, ...], Field(max_length=1000)] | None = None
    #: If it is reached, the loop ends and the flow fails.
    max_iterations: Annotated[int, Field(strict=True, le=MAX_ITERATIONS_CEILING)] = DEFAULT_CEILING

    @field_validator("max_iterations")
    @classmethod
    def _turns(cls, value: int) -> int:
        if value < 1:
            raise ValueError(f"it is {value}; give a number from 1 to {MAX_ITERATIONS_CEILING}")
        return value


class EndLoop(LabelledStep):
    """Ends the innermost flat loop."""

    type: Literal["endLoop"]


class ResetStep(LabelledStep):
    """Resets a conversation: its next step starts without history."""

    type: Literal["reset"]
    agent_type: AgentType
    identifier: Identifier


class SubflowStep(LabelledStep):
    """Runs other flows in parallel and continues when all have ended, failed or not."""

    type: Literal["subflow"]
    flow_names: Annotated[tuple[Stem, ...], Field(min_length=1, max_length=50)]
    inputs: dict[InputName, Text] = Field(default={})

    @field_validator("flow_names")
    @classmethod
    def _differ(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if value.count(name) > 1:
                raise ValueError(f"{name!r} is listed twice; list each flow once")
        return value


class Branch(Written):
    """Steps that run in order, beside those of other branches."""

    steps: Annotated[tuple[FlowStep, ...], Field(min_length=1, max_length=1000)]


class ParallelStep(LabelledStep):
    """Runs branches side by side, and continues when all have ended."""

    type: Literal["parallel"]
    branches: Annotated[tuple[Branch, ...], Field(min_length=2, max_length=50)]


class WaitStep(LabelledStep):
    """Waits without a worker; a restart does not restart the wait."""

    type: Literal["wait"]
    seconds: LongSeconds


class HumanStep(WorkStep):
    """Asks a person and waits for the answer, which may be sent to an agent."""

    type: Literal["human"]
    question: Text
    #: The fields of the answer: a JSON Schema.
    form: Form | None = None
    #: The answer is one of these; with a form it has its fields, too.
    choices: Options | None = None
    #: The answer if no person gives one in time: a text, a choice or an object.
    default: GivenAnswer | None = None
    #: The agent that gets the answer as an instruction; optional.
    agent_type: AgentType | None = None
    identifier: Identifier | None = None
    #: After this time the step has its default as the answer, or fails without one.
    timeout_seconds: LongSeconds = HUMAN_TIMEOUT_S

    @property
    def rules(self) -> AnswerRules:
        """Return which answers the question accepts."""
        return AnswerRules(form=self.form, choices=self.choices, default=self.default)

    @field_validator("default", mode="before", json_schema_input_type=GivenAnswer | Text | None)
    @classmethod
    def _from_text(cls, value: object) -> object:
        return {"text": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _default_fits(self) -> HumanStep:
        found = [] if self.default is None else fit(self.rules, self.default)
        if isinstance(found, list) and found:
            one = found[0]
            raise FieldFaulty(f"default.{one.field}", f"{one.message}; {one.hint}")
        return self

    @model_validator(mode="after")
    def _both_or_none(self) -> HumanStep:
        if (self.agent_type is None) != (self.identifier is None):
            missing = "agentType" if self.agent_type is None else "identifier"
            raise FieldFaulty(missing, "it is missing; give agentType and identifier, or neither")
        return self


class CheckStep(WorkStep):
    """Judges the work so far; the step fails unless the checker accepts."""

    type: Literal["check"]
    checker: Checker


FlowStep: TypeAlias = Annotated[
    LlmStep | CommandStep | BreakStep | ContinueStep | IfStep | StartLoop | EndLoop | ResetStep
    | SubflowStep | ParallelStep | WaitStep | HumanStep | CheckStep | ToolStep,
    Field(discriminator="type"),
]  # fmt: skip
IfStep.model_rebuild()
StartLoop.model_rebuild()
Branch.model_rebuild()
ParallelStep.model_rebuild()


class FlowDefinition(Written):
    """The content of a flow file."""

    #: The JSON schema for editors; ignored.
    schema_: str | None = Field(default=None, alias="$schema", exclude=True)
    description: str = Field(default="", max_length=2000)
    steps: Annotated[tuple[FlowStep, ...], Field(max_length=1000)]
    #: Maps an agentType to a name in agents.toml; `*` maps all others.
    agents: dict[AgentType | Literal["*"], AgentType] = Field(default={})
    #: The inputs of a run with their defaults; null means required.
    inputs: dict[InputName, Annotated[str, Field(max_length=200_000)] | None] = Field(default={})
    #: A JSON Schema of type `object` for inputs; the value of one that is no text is written as
    #: JSON. Its defaults are those of inputs.
    input_schema: dict[str, JsonValue] | None = None
    #: The most attempts of an agent step; LEADHAND_ATTEMPTS by default.
    attempts: Annotated[int, Field(strict=True, ge=1, le=100)] | None = None
    #: Files that its agents must leave as they were before the first step: otherwise the session
    #: ends as `tampered`.
    protected: Annotated[tuple[Protected, ...], Field(max_length=100)] = ()
    #: The limits of a run.
    budget: Budget = Budget()

    @model_validator(mode="before")
    @classmethod
    def _take_values(cls, given: object) -> object:
        bound_references(given)
        return with_texts(given)

    @model_validator(mode="after")
    def _well_formed(self, info: ValidationInfo) -> FlowDefinition:
        if info.context is ANY_STRUCTURE:
            return self
        fault = next(structural_faults(self), None)
        if fault is not None:
            raise FlowMalformed(fault)
        return self


class FlowRun(WithEnvironment):
    """The options of a run of a flow of the catalog."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    #: The working folder: an absolute path.
    working_folder: str | None = None
    #: What people call the session; `Flow: NAME` unless given.
    title: Name | None = None
    #: A value that is no text needs a type in the flow's inputSchema; as a text it is JSON.
    inputs: dict[InputName, JsonValue] = Field(default={})
    #: Replaces an agentType by an agent; `*` replaces all others.
    agents: dict[AgentType | Literal["*"], AgentType] = Field(default={})
    priority: Priority = "normal"
    #: Whether it works in a worktree of the folder's repository, or in a copy of the folder, until
    #: its work is applied.
    worktree: StrictBool | WorktreeOptions = False
    place: Name | None = None
    webhook: Webhook | None = None
    #: Protected files beside those of the file.
    protected: Annotated[tuple[Protected, ...], Field(max_length=100)] = ()
    #: The limits of the run; they override those of the file.
    budget: Budget = Budget()

    @field_validator("working_folder")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value, name="working_folder")


#: A run without options.
NO_WISHES = FlowRun()


class FlowDocument(FlowDefinition, WithEnvironment):
    """A flow to run, with the content of all files that it uses."""

    kind: Literal["flow"] = "flow"
    name: Stem = "flow"
    #: What people call the session; `Flow: NAME` unless given.
    label: Name | None = None
    priority: Priority = "normal"
    cwd: str | None = None
    #: Untracked files that are no work; see the field of a loop.
    leave_out: LeaveOut | None = None
    #: Whether it works in a worktree or a copy of the folder, until its work is applied.
    worktree: StrictBool | WorktreeOptions = False
    place: Name | None = None
    webhook: Webhook | None = None
    #: Of `command` steps, by name; those that are missing come from the catalog.
    commands: dict[Stem, Messages] = Field(default={})
    #: Of `markdownFile`s, by path; the same.
    markdown: dict[MarkdownFile, Messages] = Field(default={})
    #: Of `subflow` steps, by name; the same.
    flows: dict[Stem, FlowDefinition] = Field(default={})

    @field_validator("cwd")
    @classmethod
    def _absolute(cls, value: str | None) -> str | None:
        return absolute(value)


AnyDocument = Annotated[
    LoopDocument | WorkflowDocument | FlowDocument | GraphDocument | PlanDocument,
    Field(discriminator="kind"),
]
