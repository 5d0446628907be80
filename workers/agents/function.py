"""Calls an agent that is a Python function, in a process of its own."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping

from pydantic import JsonValue

from app.core.outcomes import Outcome, Thread, Usage
from app.truncate import cut
from leadhand.models.verdicts import ReasonCode
from workers.agents.output_parser import TEXT_LIMIT
from workers.agents.question import Answer, Question
from workers.functions import call
from workers.inline_calls import CallResult
from workers.processes.exit_outcome import failed_outcome, failure

_MOST_TOKENS = 10**12
_MOST_USD = 1_000_000.0


def ask_function(question: Question, cancel: threading.Event) -> Answer:
    """Call a Python function as an agent; it returns text, or a dict of text, thread and usage."""
    assert question.agent.callable is not None
    context: dict[str, JsonValue] = {
        "prompt": question.prompt,
        "model": question.model,
        "role": question.role,
        "thread": question.thread_before.id,
    }
    # A file of the folder that a request names does not replace the operator's function.
    is_limited = not question.task.is_free
    is_hidden = is_limited and question.name not in question.task.agents.of_folder
    called = call(
        question.task,
        question.agent.callable,
        context,
        timeout_s=question.timeout_s,
        cancel=cancel,
        variables=question.agent.variables,
        search="never" if is_hidden else None,
    )
    bad = failure(called.result, who=question.who, timeout_s=question.timeout_s)
    if bad is None:
        bad = _failure_of_call(question.who, called, is_hidden=is_hidden)
    returned = called.value if isinstance(called.value, dict) else {"text": called.value}
    text = "" if bad is not None else _text(returned, called)
    thread = Thread(conversation="", id=_thread(returned))
    return Answer(
        question.name,
        question.prompt,
        called.result,
        text=cut(text, TEXT_LIMIT),
        whole=text,
        failure=bad,
        usage=_usage(question, returned),
        thread=question.next_thread(thread),
        own_thread=thread if thread.id is not None else None,
        final=called.missing is not None,
    )


def _failure_of_call(who: str, called: CallResult, *, is_hidden: bool) -> Outcome | None:
    if called.missing is not None:
        hidden = "\nwithout exec:free it is looked up where packages are, not in the working folder"
        text = f"{who} could not start: {called.missing}{hidden if is_hidden else ''}"
    elif called.raised is not None:
        text = f"{who} raised: {called.raised}"
    elif called.unfinished:
        text = f"{who} ended its process before it returned"
    elif not isinstance(called.value, str | dict | None):
        text = f"{who} returned neither text nor a dict but {cut(repr(called.value), 500)}"
        return failed_outcome(ReasonCode.INVALID_ANSWER, text, result=called.result)
    else:
        return None
    return failed_outcome(ReasonCode.FAILED_STEP, text, result=called.result)


def _text(returned: Mapping[str, JsonValue], called: CallResult) -> str:
    """The returned text, or the function's output if it returned none."""
    text = returned.get("text")
    return called.result.stdout.text.strip() if text is None else str(text)


def _thread(returned: Mapping[str, JsonValue]) -> str | None:
    thread = returned.get("thread")
    return cut(str(thread), 500) if thread else None


def _usage(question: Question, returned: Mapping[str, JsonValue]) -> Usage | None:
    cost = _number(returned.get("cost_usd"))
    counts = [_number(returned.get(name)) for name in ("input_tokens", "output_tokens")]
    if cost is None and counts == [None, None]:
        return None
    tokens = [min(int(count or 0), _MOST_TOKENS) for count in counts]
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
