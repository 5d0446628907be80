"""The body of an agent step: a named agent, a free command or a callable works on the task."""

from __future__ import annotations

import threading

from pydantic import JsonValue

from app.outcomes import Outcome
from app.reasons import ReasonCode
from app.texts import cut
from workers.agents.asking import agent_named, ask
from workers.agents.hearing import TEXT_LIMIT
from workers.agents.prompts import doer_prompt
from workers.body_task import BodyTask
from workers.callables import Called, call
from workers.endings import failed, failure, stamped
from workers.inputs import DoerInputs
from workers.sandbox import run


def do(task: BodyTask, cancel: threading.Event) -> Outcome:
    """The doer's outcome: its text where it succeeded, why not where it failed."""
    given = DoerInputs.model_validate(task.inputs)
    doer = given.doer
    if doer is not None and doer.command is not None:
        return _by_command(task, given, doer.command, cancel)
    if doer is not None and doer.callable is not None:
        return _by_callable(task, given, doer.callable, cancel)
    return _by_agent(task, given, agent_named(task, doer.agent if doer else None), cancel)


def _by_agent(task: BodyTask, given: DoerInputs, name: str, cancel: threading.Event) -> Outcome:
    answer = ask(
        task,
        name,
        doer_prompt(given),
        role="doer",
        model=given.model,
        timeout_s=task.timeout_s,
        cancel=cancel,
    )
    if answer.failure is not None:
        return answer.told(answer.tried_again(answer.failure))
    return answer.told(Outcome(word="succeeded", text=answer.text))


def _by_command(task: BodyTask, given: DoerInputs, line: str, cancel: threading.Event) -> Outcome:
    result = run(task.command(line, prompt=doer_prompt(given)), cancel)
    bad = failure(result, who="doer command", timeout_s=task.timeout_s)
    text = cut(result.stdout.text.strip(), TEXT_LIMIT)
    if bad is not None:
        return bad.model_copy(update={"text": text})
    return stamped(Outcome(word="succeeded", text=text), result)


def _by_callable(task: BodyTask, given: DoerInputs, name: str, cancel: threading.Event) -> Outcome:
    context: dict[str, JsonValue] = given.model_dump(mode="json", exclude={"doer"})
    context["prompt"] = doer_prompt(given)
    context["feedback"] = given.previous.feedback if given.previous else ""
    quick = given.doer is not None and given.doer.quick
    called = call(task, name, context, timeout_s=task.timeout_s, cancel=cancel, quick=quick)
    who = f"doer {name!r}"
    bad = failure(called.result, who=who, timeout_s=task.timeout_s)
    if bad is not None:
        return bad
    why = _why_failed(called)
    if why is not None:
        return failed(ReasonCode.FAILED_STEP, f"{who} {why}", result=called.result)
    return stamped(_returned(who, called), called.result)


def _why_failed(called: Called) -> str | None:
    if called.missing is not None:
        return f"could not start: {called.missing}"
    if called.raised is not None:
        return f"raised: {called.raised}"
    return "ended its process before it returned" if called.unfinished else None


def _returned(who: str, called: Called) -> Outcome:
    """Text, nothing (then what it printed), a dict with `text` and `value`, or any JSON value."""
    value = called.value
    if value is None:
        return Outcome(word="succeeded", text=cut(called.result.stdout.text.strip(), TEXT_LIMIT))
    if isinstance(value, str):
        return Outcome(word="succeeded", text=cut(value, TEXT_LIMIT))
    if not isinstance(value, dict) or not value.keys() & {"text", "verdict"}:
        return Outcome(word="succeeded", text=cut(str(value), TEXT_LIMIT), value=value)
    text = cut(str(value.get("text") or ""), TEXT_LIMIT)
    if value.get("verdict") == "terminate":
        ended = failed(ReasonCode.TERMINATED, f"{who} said terminate: {text}")
        return ended.model_copy(update={"verdict": "terminate", "text": text})
    return Outcome(word="succeeded", text=text, value=value.get("value"))
