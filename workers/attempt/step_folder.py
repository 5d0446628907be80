"""Checks the working folder of a step before its body runs, and opens that of a fork."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from app.domain.outcomes import Outcome
from app.domain.program import Action
from app.operations.attempts import Work
from app.operations.local_skipping import is_skipped
from app.settings import Settings
from workers.attempt.actions import run_body
from workers.attempt.park import PARKING
from workers.attempt.workspace_step import opening_of, turn_failure
from workers.folders.root_check import folder_failure
from workers.task.task import BodyTask


class StepFolders:
    """The working folders of the steps of one worker process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        #: The folder of all worktrees. Joined once: a path costs as much as the claim of a step.
        self.worktrees = settings.worktrees_root

    def is_open(self, work: Work) -> bool:
        """Whether the step can start without making the folder of its fork."""
        return opening_of(work, self.worktrees) is None

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
