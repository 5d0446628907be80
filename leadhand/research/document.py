"""Turns a workflow, or a question, into a graph document, and finds all of its errors first."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Protocol, cast

from leadhand.graphs.references import (
    Reference,
    ReferenceFault,
    escape,
    parse,
    references_in,
    target_of,
    texts_in,
)
from leadhand.models.cycles import find_blocked
from leadhand.models.tool_schemas import LOCAL_PREFIX
from leadhand.research.models import (
    AgentConfig,
    ToolNotFoundError,
    Workflow,
    WorkflowStep,
    WorkflowValidationError,
)
from leadhand.research.values import ValueRefusedError, to_json_value

#: The most seconds for one attempt, and for a workflow.
_LONGEST_S = 30 * 24 * 3600.0
Tools = Mapping[str, Callable[..., Any]]
#: What separates the steps of a command.
_BETWEEN = re.compile(
    r"\s*(?:[;\n]|,?\s+and\s+then\s+|,?\s+then\s+|\.\s+(?:then\s+)?|,\s+and\s+|,\s*)\s*",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+", re.MULTILINE)
_GIVEN = re.compile(r"\b([A-Za-z_]\w*)=(\"[^\"]*\"|'[^']*'|\S+)")
_QUOTED = re.compile(r"\"([^\"]*)\"|'([^']*)'")
_WORD = re.compile(r"[^\W_]+")
#: Words that say nothing about an argument.
_FILLERS = frozenset(
    (
        *("a", "an", "the", "for", "about", "of", "on", "to", "from", "into", "in", "with", "by"),
        *("it", "them", "this", "these", "result", "results", "and", "please"),
    )
)


def check_workflow(workflow: Workflow, *, strict: bool) -> None:
    """Raises WorkflowValidationError, with all errors, unless the workflow can run."""
    problems = [*_problems(workflow)]
    if not problems:
        problems += _reference_problems(workflow, strict=strict)
    if problems:
        raise WorkflowValidationError(*problems)


def check_tools(workflow: Workflow, tools: Collection[str]) -> None:
    """Raises ToolNotFoundError for the first step whose tool does not exist."""
    for step in workflow.steps:
        if step.tool not in tools:
            raise ToolNotFoundError(f"Tool '{step.tool}' not found")


def graph_document(
    workflow: Workflow, config: AgentConfig, logger: logging.Logger
) -> dict[str, Any]:
    """Converts a valid workflow to a graph whose tools run in this process."""
    names = [step.name for step in workflow.steps]
    return {
        "kind": "graph",
        "name": workflow.name[:120],
        "description": workflow.description[:20_000] or None,
        "steps": [_graph_step(step, names, config, logger) for step in workflow.steps],
        "budget": {"wall_s": min(config.timeout_seconds, _LONGEST_S)},
    }


def definition_of(workflow: Workflow) -> dict[str, Any]:
    """Converts a workflow to JSON. Raises ValueRefusedError."""
    steps = []
    for step in workflow.steps:
        fields = asdict(step)
        if step.retries(-1) == -1:
            del fields["retry_count"]
        steps.append(fields)
    found = {
        "name": workflow.name,
        "description": workflow.description,
        "steps": steps,
        "metadata": workflow.metadata,
    }
    return cast("dict[str, Any]", to_json_value(found, "workflow"))


def workflow_of(definition: Mapping[str, Any]) -> Workflow:
    """Converts JSON to a workflow. Raises TypeError, KeyError for damaged JSON."""
    steps = [WorkflowStep(**step) for step in definition["steps"]]
    return Workflow(
        name=definition["name"],
        description=definition["description"],
        steps=steps,
        metadata=dict(definition["metadata"]),
    )


def hash_of(workflow: Workflow) -> str:
    """Returns a hash of a workflow's steps: 16 hex digits."""
    text = json.dumps(definition_of(workflow)["steps"], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _problems(workflow: Workflow) -> Iterator[str]:
    fields = {"name": workflow.name, "description": workflow.description}
    for name, value in (fields | {"metadata": workflow.metadata}).items():
        yield from _value_problems(name, value)
    if not workflow.name.strip():
        yield "name: it is empty; give the workflow a name"
    if not workflow.steps:
        yield "steps: there is none; give at least one"
    names = [step.name for step in workflow.steps]
    for number, step in enumerate(workflow.steps):
        yield from _step_problems(f"steps[{number}]", step, names[:number], names)


def _value_problems(path: str, value: object) -> Iterator[str]:
    try:
        to_json_value(value, path)
    except ValueRefusedError as error:
        yield f"{error}; give a value that JSON has"


def _step_problems(
    path: str, step: WorkflowStep, before: list[str], names: list[str]
) -> Iterator[str]:
    if not step.name.strip() or step.name != step.name.strip() or len(step.name) > 120:
        yield f"{path}.name: it is {step.name!r}; give 1 to 120 characters, with no outer spaces"
    if step.name in before:
        yield f"{path}.name: {step.name!r} is the name of another step, too; give each its own"
    if not 1 <= len(step.tool) <= 190 or not step.tool.isprintable():
        yield f"{path}.tool: it is {step.tool!r}; name a tool in 1 to 190 characters"
    if not 0 < step.timeout <= _LONGEST_S:
        yield f"{path}.timeout: it is {step.timeout!r}; give a number of seconds above 0"
    if not 0 <= step.retry_count <= 100:
        yield f"{path}.retry_count: it is {step.retry_count!r}; give a number from 0 to 100"
    unknown = [name for name in step.depends_on if name not in names or name == step.name]
    if unknown:
        yield f"{path}.depends_on: there is no other step {unknown[0]!r}; name a step"
    for name in ("name", "tool", "description", "arguments"):
        yield from _value_problems(f"{path}.{name}", getattr(step, name))


def _reference_problems(workflow: Workflow, *, strict: bool) -> Iterator[str]:
    names = [step.name for step in workflow.steps]
    if strict:
        for number, step in enumerate(workflow.steps):
            for where, text, why in _unknown_references(step.arguments, names):
                yield f"steps[{number}].arguments.{where}: {text}: {why}"
    needs = {step.name: tuple(_needs(step, names)) for step in workflow.steps}
    blocked = find_blocked(needs)
    if blocked:
        circle = ", ".join(sorted(blocked))
        yield f"steps: these need each other in a circle: {circle}; remove a reference"


def _needs(step: WorkflowStep, names: Collection[str]) -> list[str]:
    found = list(step.depends_on)
    arguments = _Lenient(names, step.name).value(step.arguments)
    return found + [target_of(one, names).name for one in references_in(arguments)]


def _unknown_references(value: Any, names: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Yields each reference that names no step: its path, its text, and why."""
    for path, text in texts_in(value):
        try:
            for part in parse(text):
                if isinstance(part, Reference):
                    _step_of(part, names)
        except ReferenceFault as fault:
            yield path, fault.text, fault.why


def _graph_step(
    step: WorkflowStep, names: Collection[str], config: AgentConfig, logger: logging.Logger
) -> dict[str, Any]:
    lenient = _Lenient(names, step.name, logger.warning)
    given = to_json_value(step.arguments, "arguments")
    arguments = given if config.strict_references else lenient.value(given)
    return {
        "name": step.name,
        "tool": f"{LOCAL_PREFIX}{step.tool}",
        "arguments": arguments,
        "depends_on": list(dict.fromkeys(step.depends_on)),
        "critical": step.critical,
        "timeout_s": float(step.timeout),
        "retries": step.retries(config.max_retries),
        "backoff_s": float(config.retry_delay),
        "description": step.description and step.description[:2_000],
    }


class _Lenient:
    """References without a value become None, or nothing within a text; each is reported."""

    def __init__(
        self, names: Collection[str], step: str, report: Callable[..., None] = lambda *_: None
    ) -> None:
        self._names = names
        self._step = step
        self._report = report

    def value(self, value: Any) -> Any:
        """A value with defaults for all of its references."""
        match value:
            case str():
                return self._text(value)
            case dict():
                return {name: self.value(item) for name, item in value.items()}
            case list() | tuple():
                return [self.value(item) for item in value]
            case _:
                return value

    def _text(self, text: str) -> str | None:
        try:
            parts = parse(text)
        except ReferenceFault as fault:
            self._report("step %r: %s is no reference: %s", self._step, fault.text, fault.why)
            is_whole = text.startswith("${") and text.endswith("}") and text.count("${") == 1
            return None if is_whole else escape(text)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return self._whole(parts[0])
        return "".join(
            escape(part) if isinstance(part, str) else self._with_default(part, '""') or ""
            for part in parts
        )

    def _whole(self, reference: Reference) -> str | None:
        """The reference that is a whole value: that of a failed step is `{"error": text}`."""
        with suppress(ReferenceFault):
            if not target_of(reference, self._names).keys:
                _step_of(reference, self._names)
                return reference.text
        return self._with_default(reference, "null")

    def _with_default(self, reference: Reference, default: str) -> str | None:
        """The reference with a default, unless it has one; None if it names no step."""
        try:
            _step_of(reference, self._names)
        except ReferenceFault as fault:
            self._report("step %r: %s has no value: %s", self._step, reference.text, fault.why)
            return None
        if reference.default is not None:
            return reference.text
        return f"{reference.text[:-1]} ?? {default}}}"


def _step_of(reference: Reference, names: Collection[str]) -> str:
    """The step that a reference names. Raises ReferenceFault."""
    first = reference.parts[0].key
    if first in ("inputs", "item", "index"):
        why = f"{first!r} is a reserved word; write ${{steps.{first}...}} for the step"
        raise ReferenceFault(reference.text, why)
    return target_of(reference, names).name


class Decomposer(Protocol):
    """Makes a workflow of a command."""

    async def decompose(self, command: str, tools: Tools) -> Workflow:
        """Convert a command in words to a workflow that uses these tools.

        Raises WorkflowValidationError if it finds none.
        """


@dataclass(frozen=True)
class KeywordDecomposer:
    """Splits a command at `then`, commas and lines, and finds the tool of each part by its words.

    The first argument of a tool that is not named (`limit=5`) is what is left of the part's words,
    or the result of the step before it. The same command always makes the same workflow.
    """

    name: str = "command"

    async def decompose(self, command: str, tools: Tools) -> Workflow:
        """Split a command into parts, match each to a tool by its words, and return the workflow.

        Raises WorkflowValidationError.
        """
        steps: list[WorkflowStep] = []
        problems: list[str] = []
        for part in filter(None, map(_clean, _split(command))):
            tool = _tool_of(part, tools)
            if tool is None:
                known = ", ".join(sorted(tools)) or "none"
                problems.append(f"no tool fits {part!r}; begin it with a word of one: {known}")
                continue
            before = steps[-1].name if steps else None
            arguments = _arguments(part, tool, tools[tool], before)
            depends = [before] if before is not None else []
            steps.append(
                WorkflowStep(
                    name=_free_name(tool, steps),
                    tool=tool,
                    arguments=arguments,
                    description=part,
                    depends_on=depends,
                )
            )
        if not steps and not problems:
            problems.append("the command is empty; say what to do")
        if problems:
            raise WorkflowValidationError(*problems)
        return Workflow(self.name, command, steps, metadata={"command": command})


def _split(command: str) -> list[str]:
    """The parts of a command; what is in quotation marks stays together.

    >>> _split('search "a, b" then fetch, and summarise')
    ['search "a, b"', 'fetch', 'summarise']
    """
    kept: list[str] = []

    def hide(found: re.Match[str]) -> str:
        kept.append(found[0])
        return f"\x00{len(kept) - 1}\x00"

    hidden = _NUMBER.sub("\n", _QUOTED.sub(hide, command))
    shown = re.compile(r"\x00(\d+)\x00")
    return [shown.sub(lambda at: kept[int(at[1])], part) for part in _BETWEEN.split(hidden)]


def _clean(part: str) -> str:
    return part.strip().rstrip(".")


def _stem(word: str) -> str:
    """The beginning by which forms of a word are compared: summaries, summarise."""
    return word.lower()[:6].rstrip("es") or word.lower()


def _tool_of(part: str, tools: Tools) -> str | None:
    """The tool whose name has most words in common with a part; the first word counts most."""
    words = [_stem(word) for word in _WORD.findall(_QUOTED.sub("", part))]
    best: tuple[int, str] | None = None
    for tool in sorted(tools):
        own = [_stem(word) for word in _WORD.findall(tool.replace("_", " "))]
        score = sum(3 if word in words[:1] else 1 for word in own if word in words)
        if score and (best is None or score > best[0]):
            best = (score, tool)
    return None if best is None else best[1]


def _arguments(
    part: str, name: str, tool: Callable[..., Any], before: str | None
) -> dict[str, Any]:
    parameters = [
        one
        for one in inspect.signature(tool).parameters.values()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    named = {found[0]: _value(found[1]) for found in _GIVEN.findall(part)}
    known = {one.name for one in parameters}
    found = {key: value for key, value in named.items() if key in known}
    left = [one for one in parameters if one.name not in found]
    text = _text_of(_GIVEN.sub("", part), name)
    wanted = [one for one in left if one.default is one.empty] or left[:1]
    values: list[Any] = [text] if text else []
    if before is not None:
        values.append("${" + f'steps["{before}"]' + "}")
    found.update({one.name: value for one, value in zip(wanted, values, strict=False)})
    return found


def _text_of(part: str, tool: str) -> str:
    """What a part says besides the name of its tool."""
    quoted = _QUOTED.search(part)
    if quoted is not None:
        return quoted[1] or quoted[2] or ""
    own = {_stem(word) for word in _WORD.findall(tool.replace("_", " "))}
    words = [word for word in part.split() if _stem(word.strip(".,:;")) not in own]
    while words and words[0].lower() in _FILLERS:
        words.pop(0)
    while words and words[-1].lower() in _FILLERS:
        words.pop()
    return " ".join(words)


def _value(text: str) -> Any:
    if text[:1] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _free_name(tool: str, steps: list[WorkflowStep]) -> str:
    taken = {step.name for step in steps}
    name, number = tool, 2
    while name in taken:
        name, number = f"{tool}-{number}", number + 1
    return name
