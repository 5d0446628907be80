"""Turns a workflow into a graph document, and finds all of its errors before anything runs."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, cast

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
from leadhand.models.tool_names import LOCAL_PREFIX
from leadhand.research.config import AgentConfig
from leadhand.research.errors import ToolNotFoundError, WorkflowValidationError
from leadhand.research.models import Workflow, WorkflowStep
from leadhand.research.values import ValueRefusedError, to_json_value

#: The most seconds for one attempt, and for a workflow.
_LONGEST_S = 30 * 24 * 3600.0


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
