"""Runs the doer of an agent step: a named agent, a shell command or a Python function."""

from __future__ import annotations

import threading

from pydantic import JsonValue

from app.core.outcomes import Outcome
from app.fleet.inventory import program_of, why_no_program
from app.truncate import cut
from leadhand.models.verdicts import ReasonCode
from workers.agents.ask import agent_named, ask, ask_on
from workers.agents.output_parser import TEXT_LIMIT
from workers.functions import call
from workers.inline_calls import CallResult
from workers.processes.exit_outcome import (
    add_process_facts,
    failed_outcome,
    failure,
    mark_retryable,
    why_not_started,
)
from workers.processes.process import run
from workers.prompts import DoerInputs, attempt_prompt, doer_prompt, prompt_with_messages
from workers.task import BodyTask


def run_doer(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run the step's doer (agent, command or function) and return its outcome, also a failure.

    The doer of a recheck is not started.
    """
    if task.passed_on is not None:
        return task.passed_on
    inputs = DoerInputs.model_validate(task.inputs)
    doer = inputs.doer
    if doer is not None and doer.command is not None:
        return _run_command(task, inputs, doer.command, cancel)
    if doer is not None and doer.callable is not None:
        return _run_function(task, inputs, doer.callable, cancel)
    return _run_agent(task, inputs, agent_named(task, doer.agent if doer else None), cancel)


def _run_agent(task: BodyTask, inputs: DoerInputs, name: str, cancel: threading.Event) -> Outcome:
    if inputs.continues:
        answer, warning = ask_on(task, inputs, name, cancel)
    else:
        warning = None
        answer = ask(
            task,
            name,
            _prompt(task, inputs),
            role="doer",
            model=inputs.model,
            timeout_s=task.timeout_s,
            cancel=cancel,
        )
    outcome = Outcome(word="succeeded", text=answer.text)
    if answer.failure is not None:
        outcome = answer.mark_retryable(answer.failure)
    return answer.add_usage(outcome.model_copy(update={"warning": warning}))


def _prompt(task: BodyTask, inputs: DoerInputs) -> str:
    prompt = attempt_prompt(doer_prompt(inputs), task.ending)
    return prompt_with_messages(prompt, task.messages)


def _run_command(task: BodyTask, inputs: DoerInputs, line: str, cancel: threading.Event) -> Outcome:
    prompt = _prompt(task, inputs)
    result = run(task.command(line, prompt=prompt), cancel)
    bad = failure(result, who="doer command", timeout_s=task.timeout_s)
    fault = _fault_of_program(task, line) if why_not_started(result) is not None else ""
    if fault:
        why = f"doer command could not start: {fault}"
        bad = failed_outcome(ReasonCode.FAILED_STEP, why, result=result)
    text = cut(result.stdout.text.strip(), TEXT_LIMIT)
    if bad is not None:
        return _with_prompt(mark_retryable(bad, result), prompt).model_copy(update={"text": text})
    done = add_process_facts(Outcome(word="succeeded", text=text), result)
    return _with_prompt(done, prompt)


def _fault_of_program(task: BodyTask, line: str) -> str:
    """Why the program of a command, given by its path, cannot be run; '' if that is unknown."""
    program = program_of(line)
    if program is None or "/" not in program or task.cwd is None:
        return ""
    fault = why_no_program(task.cwd / program)
    return fault and f"{program!r}: {fault}"


def _run_function(
    task: BodyTask, inputs: DoerInputs, name: str, cancel: threading.Event
) -> Outcome:
    context: dict[str, JsonValue] = inputs.model_dump(
        mode="json",
        exclude={"doer": True, "continues": True, "previous": {"judged", "tools_failed"}},
    )
    prompt = _prompt(task, inputs)
    context["prompt"] = prompt
    context["feedback"] = inputs.previous.feedback if inputs.previous else ""
    quick = inputs.doer is not None and inputs.doer.quick
    called = call(task, name, context, timeout_s=task.timeout_s, cancel=cancel, quick=quick)
    return _with_prompt(_outcome_of_call(task, f"doer {name!r}", called), prompt)


def _outcome_of_call(task: BodyTask, who: str, called: CallResult) -> Outcome:
    bad = failure(called.result, who=who, timeout_s=task.timeout_s)
    if bad is not None:
        return mark_retryable(bad, called.result)
    why = _fault_of_call(called)
    if why is not None:
        may_retry = called.missing is None
        text = f"{who} {why}"
        return failed_outcome(
            ReasonCode.FAILED_STEP, text, result=called.result, retryable=may_retry
        )
    return add_process_facts(_outcome_of_value(who, called), called.result)


def _with_prompt(outcome: Outcome, prompt: str) -> Outcome:
    """The outcome with the doer's prompt, for the transcript."""
    return outcome.model_copy(update={"prompt": cut(prompt, TEXT_LIMIT)})


def _fault_of_call(called: CallResult) -> str | None:
    if called.missing is not None:
        return f"could not start: {called.missing}"
    if called.raised is not None:
        return f"raised: {called.raised}"
    return "ended its process before it returned" if called.unfinished else None


def _outcome_of_value(who: str, called: CallResult) -> Outcome:
    """The outcome of a returned value: text, None (use its output), a dict, or any JSON value.

    A dict may have `text`, `value` and `verdict`.
    """
    value = called.value
    if value is None:
        return Outcome(word="succeeded", text=cut(called.result.stdout.text.strip(), TEXT_LIMIT))
    if isinstance(value, str):
        return Outcome(word="succeeded", text=cut(value, TEXT_LIMIT))
    if not isinstance(value, dict) or not value.keys() & {"text", "verdict"}:
        return Outcome(word="succeeded", text=cut(str(value), TEXT_LIMIT), value=value)
    text = cut(str(value.get("text") or ""), TEXT_LIMIT)
    if value.get("verdict") == "terminate":
        ended = failed_outcome(ReasonCode.TERMINATED, f"{who} returned terminate: {text}")
        return ended.model_copy(update={"verdict": "terminate", "text": text})
    return Outcome(word="succeeded", text=text, value=value.get("value"))
