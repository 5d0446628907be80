"""Plans in repositories for the chaos runs: each task works in a worktree, and is merged."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from tests.chaos.ends import End
from tests.unit.workers.folders.repositories import git, make_repository

#: Builds a body's command line, from its kind and arguments.
Command = Callable[..., str]

#: The kind of the sessions, the file that some tasks change both, and what tells a doer so.
MERGED, SHARED, SHARES = "merged", "shared.txt", "Change the shared file."


class Merges:
    """Draws plans whose tasks are merged."""

    def __init__(self, rng: Random, command: Command, *, longest_s: float) -> None:
        self._rng = rng
        self._command = command
        self._longest_s = longest_s

    def plan(self) -> tuple[End, dict[str, Any]]:
        """Tasks that are all accepted; some need others, and some conflict in text."""
        rng = self._rng
        tasks = [self._task(number) for number in range(rng.randint(3, 4))]
        check = self._command("check", 0.05, "*:1")
        document = {
            "kind": "plan", "request": "Merge it by chaos.", "tasks": tasks, "refine": False,
            "doer": {"command": self._command("merge")},
            "baseline": False, "checkers": [{"name": "soon", "command": check}],
            "at_once": rng.randint(2, 3), "task_retries": 1, "on_task_failure": "continue",
            "workspace": "worktree",
        }  # fmt: skip
        return End(), document

    def _task(self, number: int) -> dict[str, Any]:
        rng = self._rng
        seconds = round(rng.uniform(0.02, 0.2) * self._longest_s, 2)
        shares = SHARES if number < 2 else ""
        needs = [f"t{rng.randrange(number)}"] if number and rng.random() < 0.3 else []
        return {
            "id": f"t{number}", "title": f"Task {number}",
            "description": f"Take {seconds} s for it. {shares}".strip(),
            "dependencies": needs, "checkers": ["soon"], "max_iterations": 2,
        }  # fmt: skip


def make_user_repository(folder: Path) -> None:
    """The repository of a user, with changes that nobody may touch, unless it is there."""
    if (folder / ".git").exists():
        return
    folder.rmdir()
    draft = folder.with_name(f"{folder.name} draft")
    shutil.rmtree(draft, ignore_errors=True)
    make_repository(draft)
    (draft / SHARED).write_text("first\n")
    git(draft, "add", SHARED)
    git(draft, "commit", "-qm", "second", SHARED)
    draft.rename(folder)
