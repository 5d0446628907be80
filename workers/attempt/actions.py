"""Runs a step's body: dispatches on the step's action and turns every error into an outcome."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import assert_never

from pydantic import ValidationError

from app.domain.outcomes import Outcome
from app.domain.program import Action
from leadhand.errors import LeadhandError
from leadhand.models.reasons import ReasonCode
from workers import tools
from workers.agents.doer import run_doer
from workers.agents.draft import draft_tasks
from workers.attempt.redact import redact_outcome
from workers.attempt.workspace_step import carry_out
from workers.checkers import decide
from workers.checkers.check import check
from workers.checkers.combine import judge
from workers.checkers.verdicts import not_started
from workers.folders.protected import Protection
from workers.processes.exit_outcome import failed_outcome
from workers.processes.no_room import NoRoom, check_room
from workers.processes.own_folders import FolderForeign
from workers.task.task import BodyTask

__all__ = ["BodyTask", "run_body"]

_log = logging.getLogger(__name__)


def run_body(
    task: BodyTask,
    cancel: threading.Event,
    body: Callable[[threading.Event], Outcome] | None = None,
) -> Outcome:
    """Run one attempt's work; return its redacted outcome. Errors become failures, except NoRoom.

    `body` replaces the body that the action selects, for a check that was sent ahead.
    """
    started_ms = _now_ms()
    try:
        outcome = body(cancel) if body is not None else _run_action(task, cancel)
    except (LeadhandError, FolderForeign) as error:
        outcome = _failure(task, str(error))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        outcome = _failure(task, f"the step's input {where!r} cannot be used: {first['msg']}")
    except NoRoom:
        raise
    except Exception as error:  # noqa: BLE001 - the edge of a task: no error may end the worker
        check_room(error, task.spill)
        _log.exception("body failed", extra={"session": task.session, "step": task.address})
        outcome = _failure(task, f"internal error: {type(error).__name__}: {error}")
    outcome = _redact(outcome, task)
    if outcome.started_ms is not None:
        return outcome
    return outcome.model_copy(update={"started_ms": started_ms, "ended_ms": _now_ms()})


def _run_action(  # noqa: C901 - one case per action
    task: BodyTask, cancel: threading.Event
) -> Outcome:
    match task.action:
        case Action.AGENT:
            return _protecting(run_doer, task, cancel)
        case Action.CHECK:
            return check(task, cancel)
        case Action.JUDGE:
            return judge(task.inputs)
        case Action.TOOL:
            return tools.use(task, cancel)
        case Action.BREAK | Action.DECIDE:
            return _protecting(decide.decide, task, cancel)
        case Action.DRAFT:
            return draft_tasks(task, cancel)
        case Action.WORKSPACE:
            return carry_out(task, cancel)
        case Action.HUMAN | Action.WAIT | Action.CHILD | Action.PLAN:
            return _failure(task, f"a {task.action.value} step parks; it has no body")
    assert_never(task.action)


def _protecting(
    body: Callable[[BodyTask, threading.Event], Outcome], task: BodyTask, cancel: threading.Event
) -> Outcome:
    """Run a body that may work in the folder; compare protected files after it."""
    given, files = task.inputs.get("protected"), task.protected_folder(cancel)
    if given is None or files is None:
        return body(task, cancel)
    return files.guard(Protection.model_validate(given), task.address, partial(body, task))


def _redact(outcome: Outcome, task: BodyTask) -> Outcome:
    """The outcome without secrets; if redaction fails, a failure with the usage alone."""
    try:
        return redact_outcome(outcome, task)
    except Exception as error:  # noqa: BLE001 - a value may be nested too deeply, for one
        _log.exception("redaction failed", extra={"session": task.session, "step": task.address})
        failure = _failure(task, f"internal error: {type(error).__name__}")
        return failure.model_copy(update={"usage": outcome.usage})


def _failure(task: BodyTask, text: str) -> Outcome:
    """A failure that is not retried; that of a check ends its loop."""
    if task.action is Action.CHECK:
        return not_started(text)
    return failed_outcome(ReasonCode.FAILED_STEP, text)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
