"""What a step does, whatever its action: the one door from an attempt to the bodies."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import assert_never

from pydantic import ValidationError

from app.errors import LeadhandError
from app.outcomes import Outcome
from app.program import Action
from app.reasons import ReasonCode
from workers import breaks, tools
from workers.agents.doers import do
from workers.body_task import BodyTask
from workers.checkers.checks import check
from workers.checkers.judge import judge
from workers.endings import failed
from workers.hush import hushed

__all__ = ["BodyTask", "run_body"]

_log = logging.getLogger(__name__)


def run_body(
    task: BodyTask,
    cancel: threading.Event,
    body: Callable[[threading.Event], Outcome] | None = None,
) -> Outcome:
    """The outcome of one attempt; whatever user code or input does, it is an outcome.

    `body` is what carries it out where that was made up already.
    """
    started_ms = _now_ms()
    try:
        outcome = body(cancel) if body is not None else _carried_out(task, cancel)
    except LeadhandError as error:
        outcome = _failed(task, str(error))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        outcome = _failed(task, f"the step's input {where!r} cannot be used: {first['msg']}")
    except Exception as error:  # noqa: BLE001 - the edge of a task: nothing may take the worker with it
        _log.exception("body failed", extra={"session": task.session, "step": task.address})
        outcome = _failed(task, f"our fault: {type(error).__name__}: {error}")
    outcome = _hushed(outcome, task)
    if outcome.started_ms is not None:
        return outcome
    return outcome.model_copy(update={"started_ms": started_ms, "ended_ms": _now_ms()})


def _carried_out(task: BodyTask, cancel: threading.Event) -> Outcome:
    match task.action:
        case Action.AGENT:
            return do(task, cancel)
        case Action.CHECK:
            return check(task, cancel)
        case Action.JUDGE:
            return judge(task)
        case Action.TOOL:
            return tools.use(task, cancel)
        case Action.BREAK | Action.DECIDE:
            return breaks.decide(task, cancel)
        case Action.HUMAN | Action.WAIT | Action.CHILD:
            return _failed(task, f"a {task.action.value} step parks; it has no body")
    assert_never(task.action)


def _hushed(outcome: Outcome, task: BodyTask) -> Outcome:
    """Without secrets, or else without anything but what it used."""
    try:
        return hushed(outcome, task)
    except Exception as error:  # noqa: BLE001 - such as of a value that is nested too deeply
        _log.exception("outcome unread", extra={"session": task.session, "step": task.address})
        told = _failed(task, f"our fault: {type(error).__name__}")
        return told.model_copy(update={"usage": outcome.usage})


def _failed(task: BodyTask, text: str) -> Outcome:
    """A failure that another attempt would only repeat; a check's ends its loop."""
    outcome = failed(ReasonCode.FAILED_STEP, text)
    if task.action is not Action.CHECK:
        return outcome
    said = {"word": "succeeded", "verdict": "terminate", "text": text, "decided_by": "not_started"}
    return outcome.model_copy(update=said)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
