"""Merging the work of a plan's tasks into a branch: what a merge session is given (pure)."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

#: The folder, beside those of the tasks, in which a plan merges. Only one session holds its lock,
#: also among those of one tree: that is the queue.
MERGE_FOLDER = ".merge"
#: The node that rebases: its inputs name the folder that the plan works in.
REBASE = "merge/attempt/rebase"
#: The loop of a session that applies the work of another one, and the node in it that merges.
APPLY, MERGE_WORK = "apply", "apply/merge"
#: How often a resolver works on one merge, and how often a person is asked about it.
RESOLVES, ASKS = 3, 3
#: How long a person has to answer, in seconds: two days.
ASK_TIMEOUT_S = 2 * 24 * 3600.0
#: Where the refs of merges are.
REFS = "refs/leadhand"


class Merge(BaseModel):
    """One merge: the branch of a task's run, and the branch that gets its work."""

    model_config = ConfigDict(frozen=True)

    plan: str
    task: str
    run: int
    #: The folder that the plan works in.
    origin: str
    prefix: str = ""
    #: The branch of the task, and the full name of the branch that gets its work.
    branch: str
    target: str

    def ref(self, name: str) -> str:
        """Return the full git ref of this merge: `merged`, `resolved` or `resolved-of`."""
        return f"{REFS}/{name}/{self.plan}/{self.task}"

    @property
    def target_name(self) -> str:
        """Return the name of the target branch, without `refs/heads/`."""
        return self.target.removeprefix("refs/heads/")


def plan_branch(plan: str) -> str:
    """Returns the name of the branch into which a plan merges its tasks.

    >>> plan_branch("5e551045")
    'leadhand/plan-5e551045'
    """
    return f"leadhand/plan-{plan}"
