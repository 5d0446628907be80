"""What was promised of merges and worktrees, as checks of the repositories and of the folders."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from app import folders
from app.engine import Engine
from app.plans.tasks import TaskRecord
from tests.chaos.merge_load import SHARED, SHARES
from tests.chaos.records import Record
from tests.unit.workers.folders.repositories import ENV, git, user_state
from workers.git.audit import Access, FolderAudit

_RESOLVES = "Resolve the merge of task "


def merged(record: Record, repo: Path, before: Mapping[str, str]) -> Iterator[str]:
    """All that a plan with merges must show in its repository; `before` is its user's state."""
    done = subprocess.run(
        ["git", "fsck", "--strict"], cwd=repo, env=ENV, capture_output=True, text=True, check=False
    )
    if done.returncode:
        yield f"git fsck: {done.stdout}{done.stderr}"
    if user_state(repo) != before:
        yield "the user's tree, index or HEAD has changed"
    branch = f"leadhand/plan-{record.ref.id}"
    if record.plan is None or not git(repo, "branch", "--list", branch):
        return
    landed = [task for task in record.plan.tasks if task.merged]
    subjects = Counter(git(repo, "log", "--format=%s", f"main..{branch}").splitlines())
    for task in record.plan.tasks:
        times = subjects[f"{task.id}: {task.task.title}"]
        if task.merged:
            yield from _landed(repo, branch, task)
        if times > 1 or (task.merged and times != 1):
            yield f"the work of {task.id} is in the branch {times} times"
        if task.fact == "accepted" and not task.merged:
            yield f"{task.id} was accepted, but has no receipt"
    yield from _shared(repo, branch, landed)


def _landed(repo: Path, branch: str, task: TaskRecord) -> Iterator[str]:
    """Whether the branch has the commit of the receipt, and the task's file."""
    commit = str(task.merged)
    if git(repo, "merge-base", commit, branch) != commit:
        yield f"{branch} has not the commit {commit} of the receipt of {task.id}"
    if not git(repo, "ls-tree", "--name-only", branch, "--", f"{task.id}.txt"):
        yield f"{branch} has not the file of {task.id}"


def _shared(repo: Path, branch: str, landed: Sequence[TaskRecord]) -> Iterator[str]:
    lines = Counter(git(repo, "show", f"{branch}:{SHARED}").splitlines())
    for task in landed:
        wanted = 1 if SHARES in task.spec.get("description", "") else 0
        if lines[task.id] != wanted:
            yield f"{SHARED} has {lines[task.id]} lines of {task.id}"


def of_folders(engine: Engine, root: Path, places: Sequence[str]) -> Iterator[str]:
    """That no worktree is without a record, and no record without a worktree."""
    for place in places:
        access = Access(partial(folders.read_at_place, engine, place))
        for finding in FolderAudit(root, access, repair=False).run().items:
            yield f"{finding.kind}: {finding.what}"
