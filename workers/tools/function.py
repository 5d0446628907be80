"""Runs a tool that is a user's Python function, in a process other than the worker's."""

from __future__ import annotations

import threading

from app.domain.outcomes import Outcome
from leadhand.models.reasons import ReasonCode
from workers.processes.exit_outcome import (
    add_process_facts,
    failed_outcome,
    failure,
    mark_retryable,
)
from workers.task.call_result import CallResult
from workers.task.functions import call
from workers.task.inputs import ToolInputs
from workers.task.task import BodyTask
from workers.tools.outcomes import outcome_of, why_declined


def use_function(task: BodyTask, inputs: ToolInputs, cancel: threading.Event) -> Outcome:
    """Call a tool's Python function; it fails if it raises or returns ``{"success": false}``."""
    called = call(
        task,
        inputs.tool,
        inputs.arguments,
        timeout_s=task.timeout_s,
        cancel=cancel,
        quick=inputs.quick,
        tools=task.shelf.folders,
    )
    return function_outcome(inputs.tool, called, timeout_s=task.timeout_s)


def use_inline(task: BodyTask, inputs: ToolInputs) -> Outcome | None:
    """Call a function that the operator has made inline, in this process; None for any other."""
    function = task.shelf.inline.find(inputs.tool) if task.inline is not None else None
    if function is None or task.inline is None:
        return None
    timeout_s = min(task.timeout_s, function.timeout_s)
    called = task.inline.call(task.shelf.inline, function, inputs.arguments, timeout_s=timeout_s)
    return None if called is None else function_outcome(inputs.tool, called, timeout_s=timeout_s)


def function_outcome(name: str, called: CallResult, *, timeout_s: float) -> Outcome:
    """Turns the result of a tool's call into an outcome."""
    who = f"tool {name!r}"
    bad = failure(called.result, who=who, timeout_s=timeout_s) or _call_failure(who, called)
    if bad is not None:
        is_final = called.refused is not None or called.missing is not None
        return bad if is_final else mark_retryable(bad, called.result)
    return add_process_facts(
        outcome_of(called.value, printed=called.result.stdout.text.strip()), called.result
    )


def _call_failure(who: str, called: CallResult) -> Outcome | None:
    value = called.value
    if called.missing is not None:
        text = f"{who} could not start: {called.missing}"
    elif called.refused is not None:
        text = f"{who}: {called.refused}"
    elif called.raised is not None:
        text = f"{who} raised: {_exception_first(called.raised)}"
    elif called.unfinished:
        text = f"{who} ended its process before it returned"
    elif isinstance(value, dict) and value.get("success") is False:
        text = f"{who} reported a failure: {why_declined(value)}"
        outcome = failed_outcome(ReasonCode.FAILED_STEP, text, result=called.result)
        return outcome.model_copy(update={"value": value})
    else:
        return None
    bad = failed_outcome(ReasonCode.FAILED_STEP, text, result=called.result)
    return bad.model_copy(update={"errors": called.errors, "members": called.members})


def _exception_first(traceback: str) -> str:
    r"""The exception, then its traceback: readers with little room quote the first line.

    >>> print(_exception_first("Traceback:\n  File \"a.py\"\n    f()\nValueError: no\nsuch"))
    ValueError: no
    Traceback:
      File "a.py"
        f()
    ValueError: no
    such
    """
    lines = traceback.splitlines()
    frames = [number for number, line in enumerate(lines) if line.startswith("  File ")]
    rest = lines[frames[-1] :] if frames else []
    first = next((line for line in rest if line[:1].strip()), None)
    return traceback if first is None else f"{first}\n{traceback}"
