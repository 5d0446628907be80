"""Lists the branches of a plan's tasks, with what is not merged yet (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leadhand.models.views.plan import TaskView


class Branch(NamedTuple):
    """The branch of a task."""

    task: TaskView
    name: str
    #: `at work`, `not merged`, `merging`, `merged`, or `failed`.
    state: str
    #: Once it is merged: the branch that got the work, and the commit there.
    into: str = ""
    commit: str = ""

    @property
    def is_merged(self) -> bool:
        """Whether the work of this branch is merged into another one."""
        return self.state == "merged"


def branches_of(tasks: Sequence[TaskView]) -> list[Branch]:
    """Returns the branches of all tasks that have one; those that are not merged come first."""
    found = [_branch(task, task.branch) for task in tasks if task.branch]
    return sorted(found, key=lambda one: one.is_merged)


def _branch(task: TaskView, name: str) -> Branch:
    merge = task.merge
    if merge is not None:
        return Branch(task, name, merge.state, merge.into or "", merge.commit or "")
    return Branch(task, name, "at work" if task.status == "in_progress" else "not merged")
