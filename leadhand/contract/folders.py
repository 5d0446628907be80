"""The operations on the folders of tasks and sessions: list, apply, compare and remove them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from leadhand.contract.bodies import Body, NoQuery, Query
from leadhand.contract.operation import READS, Operation, Scope, replies
from leadhand.models.plans import BranchName, TaskId
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.views.audit import FolderAuditView
from leadhand.models.views.folder import ApplyingView
from leadhand.models.views.plan import CleaningView, HomeView, MergeView, WorktreeView
from leadhand.models.views.view import Page

_ALL = "/v1/worktrees"
_ONE = "/v1/sessions/{session}"


class FoldersQuery(Query):
    """Which page of the list."""

    cursor: Annotated[str, Field(max_length=200)] | None = None


LIST = Operation[FoldersQuery](
    name="worktrees.all", method="GET", path=_ALL,
    summary="List the folders of all sessions, page by page",
    responses=(replies(Page[WorktreeView], "The folders of the next sessions, newest first."),),
    scope=Scope.READ,
    query=FoldersQuery,
)  # fmt: skip


class FolderAuditBody(Body):
    """Whether findings are repaired."""

    repair: bool = False


AUDIT = Operation[FolderAuditBody](
    name="worktrees.audit", method="POST", path=f"{_ALL}/audit",
    summary="Compare the folders at each place with the store",
    responses=(replies(FolderAuditView, "A session per place with a worker; its result text has the"
                       " findings.", 202),),
    scope=Scope.ADMIN,
    body=FolderAuditBody, refuses=(409,),
)  # fmt: skip


OF_SESSION = Operation[NoQuery](
    name="worktrees.listed", method="GET", path=f"{_ONE}/worktrees",
    summary="List the folders of a plan's tasks, or of a session",
    responses=(replies(Page[WorktreeView], "All folders, in the order of the plan."),),
    scope=Scope.READ,
    body_right=READS, refuses=(409,),
)  # fmt: skip


class CleanBody(Body):
    """Which folders are removed."""

    #: The tasks whose folders are removed; without any, those of all tasks.
    tasks: Annotated[list[TaskId], Field(default_factory=list, max_length=500)]
    #: Also those with changes or commits that are nowhere else: changes are committed to the
    #: branch, which stays. A copy is deleted with all its work.
    force: bool = False


CLEAN = Operation[CleanBody](
    name="worktrees.clean", method="POST", path=f"{_ONE}/worktrees/clean",
    summary="Remove the folders of ended tasks, or of a session",
    responses=(replies(CleaningView, "The session that removes them, and what must stay.", 202),),
    scope=Scope.CONTROL,
    body=CleanBody, refuses=(409,),
)  # fmt: skip


MERGES = Operation[NoQuery](
    name="worktrees.merges", method="GET", path=f"{_ONE}/merges",
    summary="List the merges of a plan's tasks",
    responses=(replies(Page[MergeView], "The receipts, in the order of the plan."),),
    scope=Scope.READ,
    body_right=READS, refuses=(409,),
)  # fmt: skip


class ApplyPlanBody(Body):
    """Which branch gets the work of a plan."""

    #: By default the branch that is checked out in the plan's folder.
    branch: BranchName | None = None


APPLY_PLAN = Operation[ApplyPlanBody](
    name="worktrees.apply_plan", method="POST", path=f"{_ONE}/plan/apply",
    summary="Fast-forward a branch of yours to that of a plan",
    responses=(replies(HomeView, "The session that does it; it fails with the reason if the branch"
                       " must be left alone.", 202),),
    scope=Scope.CONTROL,
    body=ApplyPlanBody, refuses=(409,),
)  # fmt: skip


class DiffBody(Body):
    """What is compared: a task, or all of the plan; with `unmerged` what is not merged yet."""

    unmerged: bool = False
    task: TaskId | None = None


DIFF_PLAN = Operation[DiffBody](
    name="worktrees.diff", method="POST", path=f"{_ONE}/plan/diff",
    summary="Compare a plan, or one task, with what it started from",
    responses=(replies(HomeView, "The session whose result has the diff as its text.", 202),),
    scope=Scope.CONTROL,
    body=DiffBody, refuses=(409,),
)  # fmt: skip


class ApplyBody(Body, WithEnvironment):
    """Which work is applied, and which checkers judge it once it is merged."""

    #: Also work that was not accepted.
    force: bool = False
    #: Which of the checkers that accepted the work run on the merged work, if that is another tree
    #: than they saw: those that are no agents, all, or none.
    recheck: Literal["commands", "all", "none"] = "commands"


APPLY = Operation[ApplyBody](
    name="worktrees.apply", method="POST", path=f"{_ONE}/apply",
    summary="Bring a session's work into the folder it came from",
    responses=(replies(ApplyingView, "The session that does it.", 202),),
    scope=Scope.CONTROL,
    body=ApplyBody, refuses=(409,),
)  # fmt: skip
