"""The body of a check step: a command, an agent or a callable judges the doer's work."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Literal

from pydantic import JsonValue

from app.outcomes import Outcome, Verdict
from app.reasons import Reason, ReasonCode
from app.texts import cut
from leadhand.verdicts import parse_verdict
from workers.agents.answers import Answer
from workers.agents.asking import agent_named, ask
from workers.agents.hearing import TEXT_LIMIT
from workers.agents.prompts import checker_prompt
from workers.body_task import BodyTask
from workers.callables import Called, call
from workers.endings import ended, failed, stamped, why_not_started
from workers.inputs import CheckInputs
from workers.sandbox import ProcessResult, run

_Rule = Literal["exit_code", "timeout", "not_started", "failed", "empty", "returned", "raised"]


def check(task: BodyTask, cancel: threading.Event) -> Outcome:
    """The checker's verdict; one that cannot start says terminate, a slow one asks for a retry."""
    given = CheckInputs.model_validate(task.inputs)
    timeout_s = min(given.checker.timeout_s, task.timeout_s)
    if given.checker.command is not None:
        return _by_command(task, given.checker.command, timeout_s, cancel)
    if given.checker.callable is not None:
        return _by_callable(task, given, given.checker.callable, timeout_s, cancel)
    return _by_agent(task, given, timeout_s, cancel)


def _by_command(task: BodyTask, line: str, timeout_s: float, cancel: threading.Event) -> Outcome:
    result = run(task.command(line, timeout_s=timeout_s), cancel)
    early = _early_end(result, who="Checker command", timeout_s=timeout_s)
    if early is not None:
        return early
    if result.exit_code == 0:
        return _verdict("accept", result.stdout.text.strip(), "exit_code", result)
    said = [text for text in (result.stdout.text.strip(), result.stderr.text.strip()) if text]
    silent = f"Command {ended(result)}"
    return _verdict("retry", "\n".join(said) or silent, "exit_code", result)


def _by_agent(
    task: BodyTask, given: CheckInputs, timeout_s: float, cancel: threading.Event
) -> Outcome:
    checker = given.checker
    name = agent_named(task, checker.agent, given.doer.agent if given.doer else None)
    answer = ask(
        task,
        name,
        checker_prompt(given),
        role="checker",
        model=checker.model,
        timeout_s=timeout_s,
        cancel=cancel,
    )
    return answer.told(_judged(name, answer, timeout_s))


def _judged(name: str, answer: Answer, timeout_s: float) -> Outcome:
    """The verdict that an agent's answer is."""
    who = f"Checker agent {name!r}"
    early = _early_end(answer.result, who=who, timeout_s=timeout_s)
    if early is not None:
        return early
    if answer.failure is not None and answer.failure.busy is not None:
        return answer.failure
    if answer.failure is not None:
        why = answer.failure.reason.text if answer.failure.reason else "it failed"
        return _verdict("retry", f"The checker failed: {why}", "failed", answer.result)
    if not answer.text:
        return _verdict("retry", f"{who} produced no output", "empty", answer.result)
    parsed = parse_verdict(answer.text)
    return _verdict(parsed.verdict, parsed.feedback, parsed.decided_by, answer.result)


def _by_callable(
    task: BodyTask, given: CheckInputs, name: str, timeout_s: float, cancel: threading.Event
) -> Outcome:
    context: dict[str, JsonValue] = given.model_dump(mode="json", exclude={"checker", "doer"})
    quick = given.checker.quick
    called = call(task, name, context, timeout_s=timeout_s, cancel=cancel, quick=quick)
    who = f"Checker {name!r}"
    early = _early_end(called.result, who=who, timeout_s=timeout_s)
    if early is not None:
        return early
    if called.missing is not None:
        return _not_started(f"{who} could not start: {called.missing}", called.result)
    if called.raised is not None:
        return _verdict("retry", called.raised, "raised", called.result)
    if called.unfinished:
        return _verdict("retry", f"{who} {ended(called.result)}", "failed", called.result)
    return _returned(who, called)


def _returned(who: str, called: Called) -> Outcome:
    """A bool, a text to parse, a pair of verdict and feedback, or a dict of them."""
    value = called.value
    word, feedback = value, called.result.stdout.text.strip()
    if isinstance(value, str):
        parsed = parse_verdict(value)
        return _verdict(parsed.verdict, parsed.feedback, parsed.decided_by, called.result)
    if isinstance(value, list) and len(value) == 2:
        word, feedback = value[0], str(value[1] or "")
    if isinstance(value, dict):
        word, feedback = value.get("verdict"), str(value.get("feedback") or "")
    verdict = _as_verdict(word)
    if verdict is None:
        text = f"{who} returned no verdict but {cut(repr(value), 500)}"
        return _verdict("retry", text, "returned", called.result)
    return _verdict(verdict, feedback, "returned", called.result)


def _as_verdict(word: JsonValue) -> Verdict | None:
    if isinstance(word, bool):
        return "accept" if word else "retry"
    return _VERDICTS.get(word.strip().lower()) if isinstance(word, str) else None


_VERDICTS: Mapping[str, Verdict] = {
    "accept": "accept",
    "retry": "retry",
    "terminate": "terminate",
}


def _early_end(result: ProcessResult, *, who: str, timeout_s: float) -> Outcome | None:
    """The outcome of a checker that did not come to its own end; None where it did."""
    why = why_not_started(result)
    if why is not None:
        return _not_started(f"{who} could not start: {why}", result)
    if result.cancelled:
        return failed(ReasonCode.CANCELLED, f"{who} was cancelled", result=result)
    if result.timed_out:
        text = f"{who} timed out after {timeout_s:g} seconds"
        return _verdict("retry", text, "timeout", result, ReasonCode.TIMEOUT)
    return None


def _not_started(text: str, result: ProcessResult) -> Outcome:
    return _verdict("terminate", text, "not_started", result, ReasonCode.FAILED_STEP)


def _verdict(
    verdict: Verdict,
    feedback: str,
    rule: _Rule | Literal["line", "json", "scan", "default"],
    result: ProcessResult,
    code: ReasonCode | None = None,
) -> Outcome:
    outcome = Outcome(
        word="succeeded",
        verdict=verdict,
        text=cut(feedback, TEXT_LIMIT),
        decided_by=rule,
        reason=None if code is None else Reason(code=code, text=feedback),
    )
    return stamped(outcome, result)
