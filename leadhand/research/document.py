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

from leadhand.models.cycles import find_blocked
from leadhand.models.references import (
    Default,
    Part,
    Reference,
    ReferenceFault,
    UnknownStep,
    escape,
    hint_of,
    map_texts,
    parse,
    references_in,
    step_reference,
    target_of,
    texts_in,
    whole,
    written,
)
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
    needs = {step.name: list(step.depends_on) for step in workflow.steps}
    for number, step in enumerate(workflow.steps):
        for path, text in texts_in(to_json_value(step.arguments, "arguments")):
            faults: list[ReferenceFault] = []
            found = references_in(_graph_text(text, names, faults.append))
            needs[step.name] += [target_of(one, names).name for one in found]
            for fault in faults:
                if strict or _is_refused(text, fault):
                    yield f"steps[{number}].arguments.{path}: {fault}"
    blocked = find_blocked(needs)
    if blocked:
        circle = ", ".join(sorted(blocked))
        yield f"steps: these need each other in a circle: {circle}; remove a reference"


def _is_refused(text: str, fault: ReferenceFault) -> bool:
    """Whether a text must be a reference; other texts may have `${...}` that name no step."""
    return _is_whole(text) or fault.text == text or fault.text.startswith("${steps")


def _is_whole(text: str) -> bool:
    return text.startswith("${") and text.endswith("}") and text.count("${") == 1


def _by_literal_name(text: str, names: Collection[str]) -> str:
    """The reference to a step whose name stands in `${NAME}` or `${NAME.key}` as it is.

    Any other text is unchanged.

    >>> _by_literal_name("${fetch it.title}", ["fetch it"])
    '${steps["fetch it"].title}'
    """
    if not _is_whole(text):
        return text
    inside = text[2:-1]
    name, *keys = [inside] if inside in names else inside.split(".")
    with suppress(ReferenceFault):
        reference = whole(text)
        if reference is not None and _step_of(reference, names):
            return text
    return step_reference(name, *keys) if name in names else text


def _graph_step(
    step: WorkflowStep, names: Collection[str], config: AgentConfig, logger: logging.Logger
) -> dict[str, Any]:
    def report(fault: ReferenceFault) -> None:
        logger.warning("step %r: %s is text: %s", step.name, fault.text, fault.why)

    def text_of(text: str) -> str:
        return _graph_text(text, names, report, strict=config.strict_references)

    return {
        "name": step.name,
        "tool": f"{LOCAL_PREFIX}{step.tool}",
        "arguments": map_texts(to_json_value(step.arguments, "arguments"), text_of),
        "depends_on": list(dict.fromkeys(step.depends_on)),
        "critical": step.critical,
        "timeout_s": float(step.timeout),
        "retries": step.retries(config.max_retries),
        "backoff_s": float(config.retry_delay),
        "description": step.description and step.description[:2_000],
    }


def _graph_text(
    text: str,
    names: Collection[str],
    report: Callable[[ReferenceFault], None],
    *,
    strict: bool = False,
) -> str:
    """A text with its references as a graph has them; what names no step is text, and reported.

    A part of a result that is missing is None, or nothing within a text, unless `strict`.
    """
    text = _by_literal_name(text, names)
    if strict:
        return text
    try:
        parts = parse(text)
    except ReferenceFault as fault:
        report(fault)
        return escape(text)
    default = Default(None if len(parts) == 1 else "")
    found = ""
    for part in parts:
        try:
            found += escape(part) if isinstance(part, str) else _defaulted(part, names, default)
        except ReferenceFault as fault:
            report(fault)
            found += escape(fault.text)
    return found


def _defaulted(reference: Reference, names: Collection[str], default: Default) -> str:
    """The reference with a default, unless it has one or is a whole result. Raises ReferenceFault.

    The whole result of a failed step is `{"error": text}`.
    """
    _step_of(reference, names)
    is_result = default.value is None and not target_of(reference, names).keys
    is_complete = reference.default is not None or is_result
    return reference.text if is_complete else written(reference.parts, default)


def _step_of(reference: Reference, names: Collection[str]) -> str:
    """The step that a reference names. Raises ReferenceFault."""
    first = reference.parts[0].key
    if first in ("inputs", "item", "index"):
        why = f"{first!r} is a reserved word; write ${{steps.{first}...}} for the step"
        raise ReferenceFault(reference.text, why)
    try:
        return target_of(reference, names).name
    except UnknownStep as fault:
        why = f"{fault.why}; {hint_of(reference, names)}"
        raise ReferenceFault(fault.text, why) from None


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
        values.append(written(["steps", Part(before, in_brackets=True)]))
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
