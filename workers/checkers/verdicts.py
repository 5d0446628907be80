"""Converts the end of a checker into a verdict with feedback and the rule that decided."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from app.core.outcomes import Outcome, Usage, Verdict
from app.truncate import cut
from leadhand.models.verdicts import Reason, ReasonCode, verdict_word
from workers.agents.ask import ask
from workers.agents.output_parser import TEXT_LIMIT
from workers.agents.question import Answer
from workers.checkers.answers import DecidedBy, ReadVerdict, read_verdict
from workers.checkers.commands import CommandRun
from workers.inline_calls import CallResult
from workers.processes.exit_outcome import (
    add_process_facts,
    describe_end,
    failed_outcome,
    timeout_text,
    why_not_started,
)
from workers.processes.process import ProcessResult
from workers.prompts import (
    VERDICT_QUESTION,
    CheckInputs,
    checker_prompt,
    new_nonce,
    verdict_question,
)
from workers.task import UNCLEAR, BodyTask

_Rule = Literal[
    "exit_code", "timeout", "not_started", "failed", "empty", "returned", "raised", "tests", "none"
]
ENDS_WITH = "its answer does not end with a line that is ACCEPT, RETRY or TERMINATE"
_BY_BOOL: Mapping[bool, Verdict] = {True: "accept", False: "retry"}
#: Programs that know only the models of their own maker.
_OWN_MODELS = {"claude", "codex"}


def command_verdict(ran: CommandRun, *, timeout_s: float) -> Outcome:
    """Returns accept for exit code 0, retry for others and a timeout, terminate if not started.

    Exit code 0 is a retry too if the tests that it reports did not pass.
    """
    result = ran.result
    early = _early_end(result, who="Checker command", timeout_s=timeout_s)
    if early is not None:
        return early
    output = [text for text in (result.stdout.text.strip(), result.stderr.text.strip()) if text]
    if ran.refusal:
        outcome = _verdict("retry", "\n\n".join([ran.refusal, *output]), "tests", result)
    elif result.exit_code == 0:
        outcome = _verdict("accept", result.stdout.text.strip(), "exit_code", result)
    else:
        feedback = "\n".join(output) or f"Command {describe_end(result)}"
        outcome = _verdict("retry", feedback, "exit_code", result)
    counts = None if ran.tests is None else ran.tests.counts
    return outcome.model_copy(update={"counts": counts})


def agent_verdict(name: str, answer: Answer, *, timeout_s: float) -> Outcome:
    """Turns a checker agent's answer into a verdict; if the agent was busy, into that failure."""
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
    found = read_verdict(answer.whole)
    return (
        unclear(who, answer.text, answer.result) if found is None else read_as(found, answer.result)
    )


def is_unclear(verdict: Outcome) -> bool:
    """Whether a checker gave an answer, and the answer was no verdict."""
    return verdict.decided_by == UNCLEAR


def unclear(who: str, text: str, result: ProcessResult) -> Outcome:
    """Returns the verdict of a checker that gave none: retry, with the answer as feedback."""
    said = f"{who} gave no verdict: {ENDS_WITH}. The answer was:\n\n{text}"
    return with_raw(_verdict("retry", said, UNCLEAR, result), text)


def read_as(found: ReadVerdict, result: ProcessResult) -> Outcome:
    """Converts the verdict that an answer ends with to an outcome."""
    return _verdict(found.verdict, found.feedback, found.decided_by, result)


def function_verdict(name: str, called: CallResult, *, timeout_s: float) -> Outcome:
    """Converts the result of a checker function to a verdict; retry if it raised."""
    who = f"Checker {name!r}"
    early = _early_end(called.result, who=who, timeout_s=timeout_s)
    if early is not None:
        return early
    why = called.missing or called.refused
    if why is not None:
        return not_started(f"{who} could not start: {why}", called.result)
    if called.raised is not None:
        return _verdict("retry", called.raised, "raised", called.result)
    if called.unfinished:
        return _verdict("retry", f"{who} {describe_end(called.result)}", "failed", called.result)
    return _returned(who, called)


def not_started(text: str, result: ProcessResult | None = None) -> Outcome:
    """Returns the verdict terminate for a checker that cannot start."""
    return _verdict("terminate", text, "not_started", result, ReasonCode.FAILED_STEP)


def with_raw(outcome: Outcome, text: str) -> Outcome:
    """Returns the outcome with the unparsed answer added, unless it is the same as the text."""
    is_same = text.strip() == outcome.text
    return outcome.model_copy(update={"raw": None if is_same else cut(text, TEXT_LIMIT)})


def _returned(who: str, called: CallResult) -> Outcome:
    """Reads a bool, a text to parse, a pair of verdict and feedback, or a dict of both."""
    value = called.value
    word, feedback = value, called.result.stdout.text.strip()
    if isinstance(value, str):
        found = read_verdict(value)
        if found is None:
            return unclear(who, value, called.result)
        return with_raw(read_as(found, called.result), value)
    if isinstance(value, list) and len(value) == 2:
        word, feedback = value[0], str(value[1] or "")
    if isinstance(value, dict):
        word, feedback = value.get("verdict"), str(value.get("feedback") or "")
    verdict = _BY_BOOL[word] if isinstance(word, bool) else verdict_word(word)
    if verdict is None:
        text = f"{who} returned no verdict but {cut(repr(value), 500)}"
        return _verdict("retry", text, UNCLEAR, called.result)
    return _verdict(verdict, feedback, "returned", called.result)


def _early_end(result: ProcessResult, *, who: str, timeout_s: float) -> Outcome | None:
    """Returns the outcome of a checker that did not end by itself; None for one that did."""
    why = why_not_started(result)
    if why is not None:
        return not_started(f"{who} could not start: {why}", result)
    if result.cancelled:
        return failed_outcome(ReasonCode.CANCELLED, f"{who} was cancelled", result=result)
    if result.timed_out:
        text = timeout_text(result, who=who, timeout_s=timeout_s)
        return _verdict("retry", text, "timeout", result, ReasonCode.TIMEOUT)
    return None


def _verdict(
    verdict: Verdict,
    feedback: str,
    rule: _Rule | DecidedBy,
    result: ProcessResult | None,
    code: ReasonCode | None = None,
) -> Outcome:
    outcome = Outcome(
        word="succeeded",
        verdict=verdict,
        text=cut(feedback, TEXT_LIMIT),
        decided_by=rule,
        reason=None if code is None else Reason(code=code, text=feedback),
    )
    return outcome if result is None else add_process_facts(outcome, result)


def ask_verdict(
    task: BodyTask, given: CheckInputs, name: str, *, timeout_s: float, cancel: threading.Event
) -> Outcome:
    """Asks an agent to judge the work and returns its verdict; `decided_by` is none without one.

    An answer that is unclear is followed by one further question in the same conversation, within
    the same time limit. Raises AgentUnknown, AgentUnusable, ModelUnwanted.
    """
    deadline = time.monotonic() + timeout_s
    model = _checker_model(task, given, name)
    first = ask(
        task,
        name,
        checker_prompt(given, new_nonce(), task.work_diff()),
        role="checker",
        model=model,
        timeout_s=timeout_s,
        cancel=cancel,
    )
    verdict = agent_verdict(name, first, timeout_s=timeout_s)
    if not is_unclear(verdict):
        return first.add_usage(verdict)
    has_memory = first.own_thread is not None or task.agents.agent(name).kind == "model"
    second = ask(
        replace(task, on_spent=lambda usage: task.on_spent(_sum(usage, first.usage))),
        name,
        VERDICT_QUESTION if has_memory else verdict_question(first.whole, new_nonce()),
        role="checker",
        model=model,
        timeout_s=max(0.1, deadline - time.monotonic()),
        cancel=cancel,
        follows=first,
    )
    return _verdict_of(name, first, second)


def _verdict_of(name: str, first: Answer, second: Answer) -> Outcome:
    """The verdict of the second answer, with both answers as feedback and as raw text."""
    both = replace(
        second,
        prompt=first.prompt,
        usage=_sum(second.usage, first.usage) if second.usage is not None else first.usage,
        tools=(*(first.tools or ()), *(second.tools or ())) or None,
        tools_failed=_tools_failed(first, second),
    )
    failure = second.failure
    if failure is not None and (second.result.cancelled or failure.busy is not None):
        return both.add_usage(failure)
    found = read_verdict(second.whole) if failure is None else None
    if found is None:
        verdict = unclear(f"Checker agent {name!r}", first.text, second.result)
    else:
        verdict = read_as(found, second.result)
        text = cut(f"{first.text}\n\n{found.feedback}", TEXT_LIMIT)
        verdict = verdict.model_copy(update={"text": text})
    ended = second.text if failure is None or failure.reason is None else failure.reason.text
    raw = f"{first.text}\n\n[{VERDICT_QUESTION}]\n\n{ended}"
    facts = {"raw": cut(raw, TEXT_LIMIT), "started_ms": first.result.started_ms}
    return both.add_usage(verdict).model_copy(update=facts)


def _tools_failed(*answers: Answer) -> int | None:
    """The number of tool calls in all answers, if each of them failed."""
    used = [one.tools_failed for one in answers if one.tools]
    return None if None in used or not used else sum(one or 0 for one in used)


def _sum(usage: Usage, more: Usage | None) -> Usage:
    """The usage of both answers."""
    if more is None:
        return usage
    costs = [one.cost_usd for one in (usage, more) if one.cost_usd is not None]
    return Usage(
        cost_usd=sum(costs) if costs else None,
        input_tokens=usage.input_tokens + more.input_tokens,
        output_tokens=usage.output_tokens + more.output_tokens,
    )


def _checker_model(task: BodyTask, given: CheckInputs, name: str) -> str | None:
    """The model for a checker: its own, else the doer's if the checker's agent takes it.

    Raises AgentUnknown.
    """
    if given.checker.model is not None or given.doer_model is None:
        return given.checker.model
    agent = task.agents.agent(name)
    doer = given.doer.agent if given.doer is not None else task.default_agent
    makers = {_maker(task, one) for one in (doer, name)}
    is_foreign = len(makers) > 1 and makers <= _OWN_MODELS
    return given.doer_model if agent.takes_model and not is_foreign else None


def _maker(task: BodyTask, name: str | None) -> str:
    """The program of an agent; empty for any other kind."""
    agent = task.agents.agents.get(name or "")
    command = agent.command if agent is not None else None
    return command[0].rpartition("/")[2] if command else ""
