"""Asks an agent to judge, and once more if its answer does not end with a verdict."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from app.domain.outcomes import Outcome, Usage
from app.truncate import cut
from workers.agents.answer import Answer
from workers.agents.ask import ask
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.read_verdict import read_verdict
from workers.checkers.verdicts import agent_verdict, is_unclear, read_as, unclear
from workers.prompts.build import VERDICT_QUESTION, checker_prompt, new_nonce, verdict_question
from workers.prompts.inputs import CheckInputs
from workers.task.task import BodyTask

#: Programs that know only the models of their own maker.
_OWN_MODELS = {"claude", "codex"}


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
    return _verdict(name, first, second)


def _verdict(name: str, first: Answer, second: Answer) -> Outcome:
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
