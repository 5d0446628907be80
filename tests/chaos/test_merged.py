"""The checks of merges name what is broken: each promise about a repository is broken once."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from app.core.addresses import SessionRef
from app.plans.tasks import TaskRecord
from tests.chaos.merge_load import SHARED, SHARES, make_user_repository
from tests.chaos.merged import merged
from tests.chaos.records import Record
from tests.unit.workers.folders.repositories import git, user_state

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PLAN = "5e551045"
BRANCH = f"leadhand/plan-{PLAN}"


class Found:
    """A plan with one task that is merged, in a worktree of the user's repository."""

    def __init__(self, folder: Path) -> None:
        self.repo, self.tree = folder / "repo", folder / "tree"
        self.repo.mkdir()
        make_user_repository(self.repo)
        self.before = user_state(self.repo)
        git(self.repo, "worktree", "add", "-q", "-b", BRANCH, str(self.tree))
        self.commit()
        spec = {"title": json.dumps("Task 0"), "description": json.dumps(SHARES)}
        tip = git(self.repo, "rev-parse", BRANCH)
        self.task = TaskRecord(id="t0", at=1, state="done", spec=spec, fact="accepted", merged=tip)

    def commit(self) -> None:
        (self.tree / "t0.txt").write_text(f"{len(list(self.tree.iterdir()))}")
        with (self.tree / SHARED).open("a") as shared:
            shared.write("t0\n")
        git(self.tree, "add", "-A")
        git(self.tree, "commit", "-qm", "t0: Task 0")

    @property
    def told(self) -> list[str]:
        class Plan:
            tasks = (self.task,)

        class Session:
            ref, plan = SessionRef(PLAN, PLAN), Plan

        return list(merged(cast("Record", Session), self.repo, self.before))


@pytest.fixture
def found(tmp_path: Path) -> Found:
    return Found(tmp_path)


def test_merged_work_as_it_should_be_breaks_nothing(found: Found) -> None:
    assert found.told == []


def landed_twice(found: Found) -> None:
    found.commit()


def lost_commit(found: Found) -> None:
    git(found.tree, "reset", "-q", "--hard", "HEAD~1")


def lost_receipt(found: Found) -> None:
    found.task = found.task.model_copy(update={"merged": None})


def touched_tree(found: Found) -> None:
    (found.repo / "two.txt").write_text("changed")


def touched_index(found: Found) -> None:
    git(found.repo, "add", "two.txt")


def moved_branch(found: Found) -> None:
    git(found.repo, "update-ref", "refs/heads/main", BRANCH)


def damaged_object(found: Found) -> None:
    tip = git(found.repo, "rev-parse", f"{BRANCH}:t0.txt")
    file = found.repo / ".git" / "objects" / tip[:2] / tip[2:]
    file.chmod(0o600)
    file.write_bytes(b"")


@pytest.mark.parametrize(
    "breaks",
    [landed_twice, lost_commit, lost_receipt, touched_tree, touched_index, moved_branch,
     damaged_object],
)  # fmt: skip
def test_a_broken_promise_about_a_merge_is_named(
    found: Found, breaks: Callable[[Found], None]
) -> None:
    breaks(found)
    assert found.told
