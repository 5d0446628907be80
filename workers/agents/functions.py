"""Asks an agent that is a Python function, called in a process of its own."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

from pydantic import JsonValue

from app.outcomes import Outcome, Thread, Usage
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.answers import Answer
from workers.agents.hearing import TEXT_LIMIT
from workers.agents.question import Question
from workers.callables import Called, call
from workers.endings import failed, failure

_MOST_TOKENS = 10**12
_MOST_USD = 1_000_000.0


def ask_function(question: Question, cancel: threading.Event) -> Answer:
    """What the function returned: a text, or a dict of text, thread, cost and tokens."""
    assert question.agent.callable is not None
    context: dict[str, JsonValue] = {
        "prompt": question.prompt,
        "model": question.model,
        "role": question.role,
        "thread": question.begun.id,
    }
    called = call(
        question.task,
        question.agent.callable,
        context,
        timeout_s=question.timeout_s,
        cancel=cancel,
        variables=question.agent.variables,
    )
    bad = failure(called.result, who=question.who, timeout_s=question.timeout_s)
    if bad is None:
        bad = _failed(question.who, called)
    said = called.value if isinstance(called.value, dict) else {"text": called.value}
    return Answer(
        question.name,
        question.prompt,
        called.result,
        text="" if bad is not None else _text(said, called),
        failure=bad,
        usage=_usage(question, said),
        thread=question.goes_on(Thread(conversation="", id=_thread(said))),
        final=called.missing is not None,
    )


def _failed(who: str, called: Called) -> Outcome | None:
    if called.missing is not None:
        text = f"{who} could not start: {called.missing}"
    elif called.raised is not None:
        text = f"{who} raised: {called.raised}"
    elif called.unfinished:
        text = f"{who} ended its process before it returned"
    elif not isinstance(called.value, str | dict | None):
        text = f"{who} returned neither text nor a dict but {cut(repr(called.value), 500)}"
        return failed(ReasonCode.INVALID_ANSWER, text, result=called.result)
    else:
        return None
    return failed(ReasonCode.FAILED_STEP, text, result=called.result)


def _text(said: Mapping[str, JsonValue], called: Called) -> str:
    """What it returned as text; where that is nothing, what it printed."""
    text = said.get("text")
    return cut(called.result.stdout.text.strip() if text is None else str(text), TEXT_LIMIT)


def _thread(said: Mapping[str, JsonValue]) -> str | None:
    thread = said.get("thread")
    return cut(str(thread), 500) if thread else None


def _usage(question: Question, said: Mapping[str, JsonValue]) -> Usage | None:
    cost = _number(said.get("cost_usd"))
    fresh, told = _number(said.get("input_tokens")), _number(said.get("output_tokens"))
    if cost is None and fresh is None and told is None:
        return None
    tokens = [min(int(count or 0), _MOST_TOKENS) for count in (fresh, told)]
    prices = question.agent.prices
    if cost is None and prices is not None:
        cost = prices.cost_usd(input_tokens=tokens[0], cached_tokens=0, output_tokens=tokens[1])
    return Usage(
        cost_usd=None if cost is None else min(cost, _MOST_USD),
        input_tokens=tokens[0],
        output_tokens=tokens[1],
    )


def _number(value: JsonValue) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if value >= 0 and math.isfinite(value) else None
