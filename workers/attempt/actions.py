"""Runs a step's body: dispatches on the step's action and turns every error into an outcome."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import assert_never

from pydantic import ValidationError

from app.core.outcomes import Outcome
from app.core.program import Action
from app.sessions.attempts import Work
from app.sessions.local_work import is_skipped
from app.settings import Settings
from leadhand.errors import LeadhandError
from leadhand.models.verdicts import ReasonCode
from workers.agents.doer import run_doer
from workers.agents.draft import draft_tasks
from workers.attempt.outcomes import redact_outcome
from workers.attempt.settle import PARKING
from workers.attempt.workspace_step import carry_out, opening_of, turn_failure
from workers.checkers import decide
from workers.checkers.check import check
from workers.checkers.combine import judge
from workers.checkers.verdicts import not_started
from workers.folders.protected import Protection
from workers.folders.spill import folder_failure
from workers.processes.exit_outcome import failed_outcome
from workers.processes.process import NoRoom, check_room
from workers.processes.user_folders import FolderForeign
from workers.task import BodyTask
from workers.tools.tool import use

__all__ = ["BodyTask", "run_body"]
_log = logging.getLogger(__name__)


def run_body(task: BodyTask, cancel: threading.Event) -> Outcome:
    """Run an attempt's work; return its redacted outcome. Errors become failures, except NoRoom."""
    started_ms = _now_ms()
    try:
        outcome = _run_action(task, cancel)
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
            return use(task, cancel)
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


class StepFolders:
    """The working folders of the steps of one worker process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: The folder of all worktrees. Joined once: a path costs as much as the claim of a step.
        self.worktrees = settings.worktrees_root

    def prepare(
        self, work: Work, task_of: Callable[[], BodyTask], cancel: threading.Event
    ) -> Outcome | None:
        """Make the folder of a fork if need be; return why the step cannot work in its folder.

        `task_of` builds a task of this attempt that shows no output.
        """
        if is_skipped(work):
            return None
        parks = work.step.action in PARKING
        failure = None if parks else folder_failure(work, self._settings)
        failure = failure or self._open(work, task_of, cancel)
        return failure if parks else failure or turn_failure(work, self.worktrees)

    def _open(
        self, work: Work, task_of: Callable[[], BodyTask], cancel: threading.Event
    ) -> Outcome | None:
        """Open the folder of a fork before its first step has run; the failure, or None."""
        inputs = opening_of(work, self.worktrees)
        if inputs is None:
            return None
        task = task_of()
        opening = replace(
            task,
            action=Action.WORKSPACE,
            inputs=inputs,
            cwd=Path(str(work.facts.cwd)),
            spill=task.spill.with_name(f"{task.spill.name}.folder"),
        )
        outcome = run_body(opening, cancel)
        return None if outcome.word == "succeeded" else outcome


def origin_of(work: Work) -> Path | None:
    """Returns the folder from which the session's own was made; None if it has none of its own."""
    return Path(str(work.workspace["origin"])) if work.workspace is not None else None
