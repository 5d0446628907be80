"""Working folders: their locks, those of single tasks and sessions, and merges (pure)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

#: The node of a program that looks at a plan's folder, or makes a task's folder.
WORKSPACE = "workspace"
#: The node that commits what is left in a worktree once the task's work was accepted.
KEEP = "keep"
#: The name before the slash of all branches that are made; no branch can have it.
RESERVED = "leadhand"
#: The input of a step that starts a child session beside other steps, which may write files, too.
BESIDE = "beside"
Kind = Literal["worktree", "copy"]
_KIND = "folder:"
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


class Survey(BaseModel):
    """What the worker of a plan found out about its folder; the value of a step's outcome."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: Kind
    #: The folder for the tasks' folders.
    shelf: str
    #: The plan's folder within the repository's working tree.
    prefix: str = ""
    #: The branch or commit that worktrees start from.
    target: str = ""
    #: Whether accepted work is merged into the target, which is the plan's own branch then.
    merge: bool = False
    #: What was checked out in the plan's folder when its branch was made.
    home: str = ""


class RunFolder(BaseModel):
    """What the steps that make and keep the folder of one run of a task are given."""

    model_config = ConfigDict(frozen=True)

    kind: Kind
    plan: str
    task: str
    run: int
    #: The folder that the plan works in.
    origin: str
    prefix: str = ""
    branch: str = ""
    target: str = ""


class Workspace(RunFolder):
    """The folder of one run of a task."""

    #: The worktree or the copy. Its worker computes it too, and compares it with the session's.
    path: str

    @property
    def cwd(self) -> str:
        """Return the working folder of the task's child session."""
        return str(PurePosixPath(self.path, self.prefix))


def workspace_of(survey: Survey, plan: str, task: str, run: int, origin: str) -> Workspace:
    """Computes the path, branch and kind of folder for a task's run from the plan's survey."""
    is_worktree = survey.kind == "worktree"
    return Workspace(
        kind=survey.kind,
        plan=plan,
        task=task,
        run=run,
        origin=origin,
        path=str(PurePosixPath(survey.shelf, folder_name(task, run))),
        prefix=survey.prefix,
        branch=branch_of(plan, task) if is_worktree else "",
        target=survey.target if is_worktree else "",
    )


def folder_name(task: str, run: int) -> str:
    """Returns the folder name of a task's run: `task` for the first run, then `task~2` and so on.

    >>> folder_name("parser", 1), folder_name("parser", 2)
    ('parser', 'parser~2')
    """
    return task if run == 1 else f"{task}~{run}"


def branch_of(plan: str, task: str) -> str:
    """Returns the git branch of a task, `leadhand/PLAN/TASK`, which all its runs share.

    >>> branch_of("5e551045", "parser")
    'leadhand/5e551045/parser'
    """
    return f"leadhand/{plan}/{task}"


#: The name of the folder that a single session has to itself.
TREE = "tree"


class RecordedState(NamedTuple):
    """A state of a working folder that a session has recorded: the fork of it starts from there."""

    #: The session, whose snapshots are on the machine of its folder.
    session: str
    #: The git tree of the folder.
    tree: str
    #: The address of the step after which, or before which, the folder was in this state.
    step: str
    #: When that step ended or began, in ms since the epoch.
    at_ms: int


class OwnFolder(NamedTuple):
    """The folder that a session's first step makes from another one: a worktree or a copy.

    Its path is known before the worker has looked at the original, so that it can be signed.
    """

    #: The folder of all worktrees and copies.
    root: str
    #: The folder that the session was started in.
    origin: str
    #: The folder within the repository's working tree; empty for its top.
    prefix: str = ""
    #: Ignored files of the repository that are copied, and a command that prepares the folder.
    copy_files: tuple[str, ...] = ()
    prepare: str = ""
    #: Of a fork: the state to which the new worktree is set.
    state: RecordedState | None = None

    def path(self, session: str) -> str:
        """Return the path of a session's worktree or copy."""
        return str(PurePosixPath(self.root, own_shelf(self.origin), session, TREE))

    def cwd(self, session: str) -> str:
        """Return the working folder of a session inside its worktree or copy."""
        return str(PurePosixPath(self.path(session), self.prefix))


def own_shelf(origin: str) -> str:
    """Returns the name (a hash) of the folder for all worktrees and copies of one original folder.

    >>> own_shelf("/home/ada/code")
    '4985daa8ab602514'
    """
    return hashlib.sha256(origin.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def own_branch(session: str) -> str:
    """Returns the name of the branch of a session's own worktree.

    >>> own_branch("5e551045")
    'leadhand/5e551045'
    """
    return f"leadhand/{session}"


def is_folder(lock: str) -> bool:
    """Whether the name of a lock is that of a folder lock: it begins with `folder:`."""
    return lock.startswith(_KIND)


def lies_below(inner: str, outer: str) -> bool:
    """Whether the folder of one lock is inside that of another, at the same place; not if equal.

    >>> lies_below("folder:here:/runs/sub", "folder:here:/runs")
    True
    >>> lies_below("folder:here:/runs2", "folder:here:/runs")
    False
    """
    return inner != outer and inner.startswith(prefix_below(outer))


def prefix_below(lock: str) -> str:
    """Returns the prefix of the lock names of all folders inside a folder, by its lock name.

    >>> prefix_below("folder:here:/runs"), prefix_below("folder:here:/")
    ('folder:here:/runs/', 'folder:here:/')
    """
    return lock if lock.endswith("/") else f"{lock}/"


def folders_above(lock: str) -> Iterator[str]:
    """Yields the lock names of all folders that contain a lock's folder, the outermost first.

    >>> list(folders_above("folder:here:/a/b"))
    ['folder:here:/', 'folder:here:/a']
    """
    place, _, path = lock.removeprefix(_KIND).partition(":")
    parts = path.strip("/").split("/") if path.strip("/") else []
    for depth in range(len(parts)):
        yield f"{_KIND}{place}:/{'/'.join(parts[:depth])}"


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
