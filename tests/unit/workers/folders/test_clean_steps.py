"""The steps that make and remove the folders of tasks, as a worker carries them out."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from workers.attempt.workspace_step import carry_out
from workers.git.layout import Shelf
from workers.registry.agents import AgentBook
from workers.task import BodyTask

PLAN, SESSION = "5e551045", "0123abcd"


class Worker:
    """One task of a plan in a plain folder, whose session has the status `status`."""

    def __init__(self, folder: Path) -> None:
        self.origin, self.root, self.status = folder / "plain", folder / "worktrees", ""
        self.origin.mkdir()
        (self.origin / "one.txt").write_text("one")
        self.path = Shelf.of(self.root, self.origin).path(PLAN, "a", 1)
        self.facts: dict[str, Any] = {"kind": "copy", "plan": PLAN, "origin": str(self.origin)}
        self.recorded: list[dict[str, Any]] = []
        self.step({"do": "make", "task": "a", "run": 1, **self.facts})

    def step(self, inputs: dict[str, Any]) -> Outcome:
        task = BodyTask(
            session=SESSION, address="workspace", action=Action.WORKSPACE, iteration=1, attempt=1,
            inputs=inputs, cwd=self.path, spill=self.root.parent / "spill", timeout_s=20.0, url="",
            mint=str, agents=AgentBook(agents={}), default_agent=None, worktrees=self.root,
            copy_max=10_000, on_workspace=lambda fields: self.recorded.append(dict(fields)),
            reserve=lambda *_: self.status,
        )  # fmt: skip
        return carry_out(task, threading.Event())

    def clean(self, **more: Any) -> str | None:
        """Clean the folder; why it was kept."""
        self.step({"do": "clean", "runs": [["a", 1]], **self.facts, **more})
        return self.recorded[-1].get("kept")


@pytest.fixture
def worker(tmp_path: Path) -> Worker:
    return Worker(tmp_path)


def test_making_of_a_copy_is_recorded_with_an_empty_commit(worker: Worker) -> None:
    made = {"plan": PLAN, "task": "a", "run": 1, "folder": str(worker.path), "base": ""}
    assert worker.recorded == [made]  # fsck expects the folder from now on


def test_folder_of_a_task_that_is_at_work_again_is_kept(worker: Worker) -> None:
    worker.status = "active"
    assert worker.clean(force=True) == "its session is active"
    worker.status = ""
    assert worker.clean() is None
    assert not worker.path.exists()


def test_folder_that_this_worker_has_elsewhere_is_not_called_removed(worker: Worker) -> None:
    elsewhere = str(worker.path.parent / "elsewhere" / "a")
    assert "LEADHAND_WORKTREES" in str(worker.clean(folders=[elsewhere]))
    assert worker.path.exists()
    assert worker.clean(folders=[str(worker.path)]) is None


def test_copy_of_a_task_from_which_a_file_was_removed_is_kept(worker: Worker) -> None:
    (worker.path / "one.txt").unlink()
    assert "differ from the original" in str(worker.clean())
    assert worker.clean(force=True) is None
    assert not list(worker.path.parent.iterdir())
