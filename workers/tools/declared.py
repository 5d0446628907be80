"""Runs a tool that is an entry of tools.toml: a command or an HTTP request."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping

from pydantic import JsonValue

from app.domain.outcomes import Outcome
from app.truncate import cut
from leadhand.models.reasons import ReasonCode
from leadhand.models.tool_values import convert
from workers.processes.exit_outcome import (
    add_process_facts,
    failed_outcome,
    failure,
    mark_retryable,
)
from workers.processes.process import Command, run
from workers.registry.declared.entry import DeclaredTool
from workers.registry.declared.listing import why_unusable
from workers.registry.declared.placeholders import OptionRefused, argv_of
from workers.task.inputs import ToolInputs
from workers.task.task import BodyTask
from workers.tools.outcomes import outcome_of, refuse_repeat
from workers.tools.request import send

#: Bytes of a command's output that become its result.
RESULT_BYTES = 4 * 1024 * 1024


def use_declared(
    task: BodyTask, inputs: ToolInputs, entry: DeclaredTool, cancel: threading.Event
) -> Outcome:
    """Checks the arguments of a tool of tools.toml, runs it and returns the outcome or failure."""
    who = f"tool {inputs.tool!r}"
    missing = why_unusable(entry, {**task.inherited, **task.session_environment.passed})
    if missing is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who} cannot be used here: {missing}")
    arguments, wrong = convert(entry.json_schema, inputs.arguments)
    if wrong is not None:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {wrong}")
    lost = refuse_repeat(task, who, may_repeat=entry.may_repeat)
    if lost is not None:
        return lost
    timeout_s = min(task.timeout_s, entry.timeout_s or task.timeout_s)
    if entry.url is not None:
        return send(task, who, entry, arguments, timeout_s=timeout_s, cancel=cancel)
    return _run_command(task, who, entry, arguments, timeout_s, cancel)


def _run_command(
    task: BodyTask,
    who: str,
    entry: DeclaredTool,
    arguments: Mapping[str, JsonValue],
    timeout_s: float,
    cancel: threading.Event,
) -> Outcome:
    try:
        command = _command(task, entry, arguments, timeout_s)
    except OptionRefused as error:
        return failed_outcome(ReasonCode.FAILED_STEP, f"{who}: {error}")
    result = run(command, cancel)
    bad = failure(result, who=who, timeout_s=timeout_s)
    if bad is not None:
        return mark_retryable(bad, result)
    size = result.stdout.size
    if size > RESULT_BYTES:
        text = (
            f"{who} printed {size:,} bytes; a result has at most {RESULT_BYTES:,}, so write a file"
        )
        return failed_outcome(ReasonCode.FAILED_STEP, text, result=result)
    text = result.stdout.whole(RESULT_BYTES)
    if entry.output != "json":
        return add_process_facts(outcome_of(text.strip()), result)
    try:
        value: JsonValue = json.loads(text)
    except ValueError as error:
        why = f"{who} printed no JSON ({error}): {cut(text.strip(), 500)}"
        return failed_outcome(ReasonCode.INVALID_ANSWER, why, result=result, retryable=True)
    return add_process_facts(outcome_of(value), result)


def _command(
    task: BodyTask, entry: DeclaredTool, arguments: Mapping[str, JsonValue], timeout_s: float
) -> Command:
    """The command line of a call. Raises OptionRefused."""
    assert entry.command is not None
    line = tuple(part.replace("\0", "\N{REPLACEMENT CHARACTER}")
                 for part in argv_of(entry.command, arguments))  # fmt: skip
    feeds = entry.feeds_arguments
    return task.command(
        line,
        prompt=json.dumps(arguments, ensure_ascii=False) if feeds else None,
        timeout_s=timeout_s,
        variables=entry.variables,
    )
