"""Nests the steps of a flow, and checks its structure, labels, references, files and agents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StrictBool,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from leadhand.flows.typed_inputs import faults_of_typed
from leadhand.graphs.values import require_list
from leadhand.models import patterns
from leadhand.models.documents import Name, Seconds
from leadhand.models.references import (
    BadReference,
    FlowReference,
    condition_of,
    split_flow_text,
    texts_in,
    whole_in_flow,
)
from leadhand.models.suggestions import listed
from leadhand.models.tool_schemas import check_flow_tool_name

if TYPE_CHECKING:
    from leadhand.flows.documents import FlowDefinition, FlowStep, Messages, StartLoop

#: The most flat loops that enclose one another, as many as nested ones may be in a JSON document.
MAX_OPEN = 30
#: Fields in which references are not replaced, with their names in the file.
_FIXED = {"label": "label", "agent_type": "agentType", "identifier": "identifier",
          "model": "model", "working_folder": "working_folder"}  # fmt: skip
ForEach = Annotated[
    Annotated[str, Field(min_length=1, max_length=2_000)] | list[JsonValue],
    BeforeValidator(require_list),
]


class Brought(NamedTuple):
    """The content of the other files that a flow uses."""

    commands: Mapping[str, Messages] = {}
    markdown: Mapping[str, Messages] = {}


_NOTHING = Brought()


class Fault(NamedTuple):
    """An error in a flow: its path, and a message with a fix."""

    path: str
    message: str
    #: The text that it is about, where it is about one.
    text: str | None = None


@dataclass(frozen=True)
class Placed:
    """A step with its path in the file, its number from 1, and the length of its list."""

    step: FlowStep
    path: str
    index: int
    total: int
    #: A loop's body, or the steps that an `if` runs on yes; then those that it runs on no.
    body: tuple[Placed, ...] = ()
    otherwise: tuple[Placed, ...] = ()
    #: Of a parallel step: the steps of each branch.
    branches: tuple[tuple[Placed, ...], ...] = ()

    @property
    def lists(self) -> tuple[tuple[Placed, ...], ...]:
        """The lists of steps within this one: its body, its else part and its branches."""
        return (self.body, self.otherwise, *self.branches)


def nest_steps(steps: tuple[FlowStep, ...], path: str = "steps") -> tuple[Placed, ...]:
    """Nests the steps of flat loops (startLoop to endLoop); drops unmatched ones, no error."""
    return _List(steps, path).arranged


def structural_faults(flow: FlowDefinition) -> Iterator[Fault]:
    """Yields the structural errors of a parsed flow with their paths, in the order of its steps."""
    if not flow.steps:
        yield Fault("steps", "the flow has no steps; add at least one")
    for fault in faults_of_typed(flow.input_schema, flow.inputs):
        yield Fault(fault.path, f"{fault.message}; {fault.hint}")
    found = _List(flow.steps, "steps")
    yield from found.faults
    yield from _faults_in(found.arranged, in_loop=False, inputs=flow.inputs, above=frozenset())


def faults_of_files(flow: FlowDefinition, brought: Brought) -> Iterator[Fault]:
    """Yields the errors of references in a flow's command and Markdown files, without its own."""
    known = set(structural_faults(flow))
    found = _faults_in(
        nest_steps(flow.steps),
        in_loop=False,
        inputs=flow.inputs,
        above=frozenset(),
        brought=brought,
    )
    yield from (fault for fault in found if fault not in known)


def faults_of_inputs(flow: FlowDefinition, flows: Mapping[str, FlowDefinition]) -> Iterator[Fault]:
    """Yields errors for unknown and missing inputs of a flow's steps that run subflows."""
    for one in steps_of(flow):
        if one.step.type != "subflow":
            continue
        for name in one.step.flow_names:
            if name in flows:
                yield from _faults_given(one.path, one.step.inputs, name, flows[name].inputs)


def _faults_given(
    path: str, given: Mapping[str, str], name: str, inputs: Mapping[str, str | None]
) -> Iterator[Fault]:
    known = listed(sorted(inputs))
    for key, text in given.items():
        if key not in inputs:
            yield Fault(f"{path}.inputs.{key}", f"{name!r} has the inputs: {known}", text)
    for key, default in inputs.items():
        if default is None and key not in given:
            yield Fault(f"{path}.inputs.{key}", f"{name!r} requires this input; add it")


def steps_of(flow: FlowDefinition) -> Iterator[Placed]:
    """Yields every step with its path and position, outer before inner, in document order."""
    yield from _flatten(nest_steps(flow.steps))


def _flatten(placed: tuple[Placed, ...]) -> Iterator[Placed]:
    for one in placed:
        yield one
        for inner in one.lists:
            yield from _flatten(inner)


@dataclass
class _Open:
    """A flat loop that waits for its end."""

    at: int
    step: StartLoop
    body: list[Placed] = field(default_factory=list)


class _List:
    """One list of steps, arranged."""

    def __init__(self, steps: tuple[FlowStep, ...], path: str) -> None:
        self.faults: list[Fault] = []
        self._steps = steps
        self._path = path
        self._done: list[Placed] = []
        self._open: list[_Open] = []
        for at, step in enumerate(steps):
            self._take(at, step)
        for loop in self._open:
            message = "the loop has no end; add an endLoop, or give it `steps`"
            self._complain(loop.at, message)
        self.arranged = tuple(self._done)

    def _take(self, at: int, step: FlowStep) -> None:
        if step.type == "endLoop":
            self._close(at)
        elif step.type == "startLoop" and step.steps is None:
            if len(self._open) == MAX_OPEN:
                self._complain(at, f"{MAX_OPEN} loops are open here; nest fewer")
            else:
                self._open.append(_Open(at, step))
        else:
            self._put(self._placed(at, step))

    def _close(self, at: int) -> None:
        if not self._open:
            message = "no loop is open here; remove this endLoop"
            self._complain(at, f"{message} (a startLoop with `steps` needs no endLoop)")
            return
        loop = self._open.pop()
        if not loop.body:
            self._complain(loop.at, "the loop is empty; put steps between it and its endLoop")
        total = len(self._steps)
        self._put(Placed(loop.step, self._at(loop.at), loop.at + 1, total, tuple(loop.body)))

    def _placed(self, at: int, step: FlowStep) -> Placed:
        path = self._at(at)
        body: tuple[Placed, ...] = ()
        otherwise: tuple[Placed, ...] = ()
        if step.type == "startLoop":
            if not step.steps:
                self._complain(at, "the loop is empty; put steps into it")
            body = self._inner(step.steps or (), f"{path}.steps")
        elif step.type == "if":
            body = self._inner(step.then, f"{path}.then")
            otherwise = self._inner(step.otherwise, f"{path}.else")
        branches: tuple[tuple[Placed, ...], ...] = ()
        if step.type == "parallel":
            branches = tuple(
                self._inner(branch.steps, f"{path}.branches[{number}].steps")
                for number, branch in enumerate(step.branches)
            )
        return Placed(step, path, at + 1, len(self._steps), body, otherwise, branches)

    def _inner(self, steps: tuple[FlowStep, ...], path: str) -> tuple[Placed, ...]:
        inner = _List(steps, path)
        self.faults += inner.faults
        return inner.arranged

    def _put(self, placed: Placed) -> None:
        (self._open[-1].body if self._open else self._done).append(placed)

    def _complain(self, at: int, message: str) -> None:
        self.faults.append(Fault(self._at(at), message))

    def _at(self, at: int) -> str:
        return f"{self._path}[{at}]"


def _faults_in(
    placed: tuple[Placed, ...],
    *,
    in_loop: bool,
    inputs: Mapping[str, str | None],
    above: frozenset[str],
    brought: Brought = _NOTHING,
) -> Iterator[Fault]:
    """Yields the errors of a list of steps; `above` has the labels visible from outside the list.

    The texts of the flow's other files are checked after its own.
    """
    seen = set(above)
    for one in placed:
        step = one.step
        if step.type in ("break", "continue") and not in_loop:
            message = f"{step.type} is used outside a loop; move it into a loop, or remove it"
            yield Fault(one.path, message)
        yield from _faults_of_texts(one, inputs, seen, brought)
        yield from _shared_conversations(one)
        yield from _lone_checks(one)
        # A branch cannot leave a loop in whose iteration others run beside it.
        inner = (in_loop or step.type == "startLoop") and step.type != "parallel"
        for body in one.lists:
            yield from _faults_in(
                body, in_loop=inner, inputs=inputs, above=frozenset(seen), brought=brought
            )
        if step.label is not None:
            seen.add(step.label)
        if step.type in ("if", "parallel"):
            # Its branches are in the same block as the steps after it.
            seen |= {p.step.label for inner in one.lists for p in inner if p.step.label}


def _shared_conversations(one: Placed) -> Iterator[Fault]:
    """Yields the conversations that two branches would continue at the same time."""
    first: dict[tuple[str, str], int] = {}
    for number, branch in enumerate(one.branches):
        for placed in _flatten(branch):
            agent = getattr(placed.step, "agent_type", None)
            identifier = getattr(placed.step, "identifier", None)
            if agent is None or identifier is None:
                continue
            if first.setdefault((agent, identifier), number) != number:
                message = (
                    f"branches[{first[agent, identifier]}] has the conversation {identifier!r} of"
                    f" {agent!r}, too, and runs beside this step; give it another identifier"
                )
                yield Fault(f"{placed.path}.identifier", message)


def _lone_checks(one: Placed) -> Iterator[Fault]:
    """Yields the checks in branches that run by themselves: the branches share their folder."""
    for branch in one.branches:
        for placed in _flatten(branch):
            checker = placed.step.checker if placed.step.type == "check" else None
            for kind, what in (("clean", "a clean"), ("isolated", "an isolated")):
                if getattr(checker, kind, False):
                    message = f"{what} checker cannot run beside other steps; put it after them"
                    yield Fault(f"{placed.path}.checker.{kind}", message)


def _faults_of_texts(
    placed: Placed,
    inputs: Mapping[str, str | None],
    seen: set[str],
    brought: Brought,
) -> Iterator[Fault]:
    yield from _faults_of_fixed(placed)
    step = placed.step
    for where, text, has_item in _texts(placed, brought):
        yield from _faults_of_text(where, text, inputs, seen, has_item=has_item)
    if step.type == "tool":
        yield from _faults_of_conditions(placed.path, step, seen)
    command = getattr(step, "command", None)
    parts = () if command is None else split_flow_text(command, seen)
    if any(isinstance(part, FlowReference) and part.kind == "input" for part in parts):
        message = "inputs are not put into shell commands; pass them to an agent, or use a file"
        yield Fault(f"{placed.path}.command", message)


def _faults_of_text(
    where: str, text: str, inputs: Mapping[str, str | None], seen: set[str], *, has_item: bool
) -> Iterator[Fault]:
    for part in split_flow_text(text, seen, has_item=has_item):
        if isinstance(part, BadReference):
            yield Fault(where, part.why, text)
        elif isinstance(part, FlowReference) and part.kind == "input" and part.name not in inputs:
            known = listed(sorted(inputs))
            message = f"it uses the input {part.name!r}, but the flow's `inputs` are: {known}"
            yield Fault(where, f"{message}. Add it to them", text)


def _faults_of_conditions(path: str, step: ToolStep, seen: set[str]) -> Iterator[Fault]:
    """Yields the errors of a forEach that is no list, and of a `when` that is no condition."""
    each, when = step.for_each, step.when
    if isinstance(each, str) and _is_no_reference(each, seen):
        hint = "give a list, or one reference to a list, such as ${steps.search.urls}"
        yield Fault(f"{path}.forEach", f"it is not a list; {hint}", each)
    if when is not None:
        has_item, text = each is not None, condition_of(when).text
        if _is_no_reference(text, seen, has_item=has_item) or _is_input(text):
            hint = "give one reference, such as ${steps.search.found}, or `not` and a reference"
            yield Fault(f"{path}.when", f"it is not a condition; {hint}", when)


def _is_no_reference(text: str, seen: set[str], *, has_item: bool = False) -> bool:
    """Whether a text is not one reference; an invalid one is reported as such."""
    parts = split_flow_text(text, seen, has_item=has_item)
    is_bad = any(isinstance(part, BadReference) for part in parts)
    return not is_bad and whole_in_flow(text, seen, has_item=has_item) is None


def _is_input(text: str) -> bool:
    found = whole_in_flow(text, ())
    return found is not None and found.kind == "input"


def _faults_of_fixed(one: Placed) -> Iterator[Fault]:
    for name, written in _FIXED.items():
        text = getattr(one.step, name, None)
        parts = split_flow_text(text, ()) if isinstance(text, str) else ()
        found = next((part for part in parts if not isinstance(part, str)), None)
        if found is not None:
            message = f"{found.text!r} is not replaced in this field; write the value itself"
            yield Fault(f"{one.path}.{written}", message, text)


def _texts(one: Placed, brought: Brought) -> Iterator[tuple[str, str, bool]]:
    """The texts of a step that may have references: paths, texts, and whether they have an item."""
    for where, text in _plain_texts(one, brought):
        yield where, text, False
    if one.step.type == "tool":
        each = one.step.for_each
        for where, text in texts_in(one.step.arguments, f"{one.path}.arguments"):
            yield where, text, each is not None
        for where, text in texts_in(each, f"{one.path}.forEach"):
            yield where, text, False
        if one.step.when is not None:
            yield f"{one.path}.when", one.step.when, each is not None


def _plain_texts(one: Placed, brought: Brought) -> Iterator[tuple[str, str]]:
    step = one.step
    if step.type == "llm":
        yield from _texts_of(step.messages or (), f"{one.path}.")
        file = step.markdown_file or ""
        yield from _texts_of(brought.markdown.get(file, ()), f"{file}: ")
    if step.type == "command":
        name = step.command_name
        yield from _texts_of(brought.commands.get(name, ()), f"commands/{name}: ")
    question = getattr(step, "question", None)
    if question is not None:
        yield f"{one.path}.question", question
    if step.type == "subflow":
        for name, text in step.inputs.items():
            yield f"{one.path}.inputs.{name}", text
    if step.type == "check" and step.checker.prompt is not None:
        yield f"{one.path}.checker", step.checker.prompt


def _texts_of(messages: Messages, before: str) -> Iterator[tuple[str, str]]:
    for number, message in enumerate(messages):
        for line, text in enumerate(message.content):
            yield f"{before}messages[{number}].content[{line}]", text


class FieldFaulty(ValueError):
    """A field conflicts with another one or is missing."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(field, message)
        self.field = field
        self.message = message

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class FlowMalformed(ValueError):
    """The steps do not fit together."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault)
        self.fault = fault

    def __str__(self) -> str:
        return f"{self.fault.path}: {self.fault.message}"


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


class Written(BaseModel):
    """Frozen; unknown fields are errors; field names are camelCase as in the files."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        str_strip_whitespace=True,
        alias_generator=to_camel,
        serialize_by_alias=True,
    )


class LabelledStep(Written):
    """A step that may have a label."""

    #: The step's name for display and for `resume --after`.
    label: Name | None = None


class WorkStep(LabelledStep):
    """A step with an effect, in a folder."""

    #: Whether the flow continues if the step fails (not if it is stopped).
    continue_on_failure: StrictBool = False
    #: The step's working folder, beneath that of the run.
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


class ToolStep(WorkStep):
    """Calls a tool of the worker, once or for each item of a list."""

    type: Literal["tool"]
    #: `module:function` in the workers' tool folders; a tool of tools.toml, `SERVER.TOOL` of an MCP
    #: server; `echo`, which returns its arguments, or `noop`, which returns nothing.
    tool: Annotated[str, Field(max_length=200)]
    arguments: dict[str, JsonValue] = Field(default={})
    #: A list, or one reference to a list; the tool is called once for each `${item}`.
    for_each: ForEach | None = None
    #: The most items of forEach that run at once; all of them if it is left out.
    at_once: Annotated[int, Field(strict=True, ge=1, le=10_000)] | None = None
    #: A reference, or `not` and a reference; the step is skipped unless its value is true.
    when: Annotated[str, Field(min_length=1, max_length=2_000)] | None = None
    timeout_seconds: Seconds = 60.0
    #: A function that takes milliseconds and may share its process with other calls.
    quick: StrictBool = False

    @field_validator("tool")
    @classmethod
    def _named(cls, value: str) -> str:
        return check_flow_tool_name(value)

    @model_validator(mode="after")
    def _limits_a_list(self) -> ToolStep:
        if self.at_once is not None and self.for_each is None:
            raise FieldFaulty("atOnce", "the step has no forEach; add it, or remove atOnce")
        return self


def agent_of(flow: FlowDefinition, type_: str) -> str:
    """Returns the agent of agents.toml that a flow's agentType is mapped to, or the type itself."""
    return flow.agents.get(type_) or flow.agents.get("*") or type_


def merge_agents(own: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Merges two maps of agentTypes to agents; `above` takes precedence, and its `*` replaces all.

    >>> merge_agents({"a": "x", "b": "y"}, {"b": "z"}), merge_agents({"a": "x"}, {"*": "z"})
    ({'a': 'x', 'b': 'z'}, {'*': 'z'})
    """
    return dict(above) if "*" in above else {**own, **above}


def merge_subflow_agents(own: Mapping[str, str], around: Mapping[str, str]) -> dict[str, str]:
    """Merges a subflow's map of agentTypes with the outer flow's, which wins except for its `*`.

    >>> merge_subflow_agents({"a": "x", "b": "y"}, {"b": "z", "*": "w"})
    {'*': 'w', 'a': 'x', 'b': 'z'}
    """
    last = {"*": around["*"]} if "*" in around else {}
    return {**last, **own, **{type_: name for type_, name in around.items() if type_ != "*"}}


def agents_asked(flow: FlowDefinition) -> Iterator[str | None]:
    """Yields the names of the agents that a flow's own steps use; None means the default agent."""
    for one in steps_of(flow):
        type_ = getattr(one.step, "agent_type", None)
        if type_ is not None:
            yield agent_of(flow, type_)
        if one.step.type == "check":
            checker = one.step.checker
            if checker.prompt is not None or checker.rubric is not None:
                yield agent_of(flow, checker.agent) if checker.agent else None
