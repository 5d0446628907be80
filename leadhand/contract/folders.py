"""The operations on the folders of tasks and sessions: list, apply, compare and remove them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from leadhand.contract.calls import Op, Steps
from leadhand.contract.operation import READS, Body, NoQuery, Operation, Query, Scope, replies
from leadhand.contract.requests import calls, reads, request
from leadhand.contract.submissions import Submissions
from leadhand.models.plans import BranchName, TaskId
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.views.fleet import FolderAuditView
from leadhand.models.views.plan import ApplyingView, CleaningView, HomeView, MergeView, WorktreeView
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
    responses=(replies(Page[MergeView], "The merges, in the order of the plan."),),
    scope=Scope.READ,
    body_right=READS, refuses=(409,),
)  # fmt: skip


class ApplyPlanBody(Body, WithEnvironment):
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


class Folders(Submissions):
    """Lists, applies, compares and removes the work folders of sessions and tasks."""

    @calls(OF_SESSION)
    def worktrees(self, session: str) -> list[WorktreeView]:
        """List the work folders of a plan's tasks, in plan order, or a session's own work folder.

        Raises NoPlan for a session that has neither.
        """

    @Op
    def all_worktrees(self) -> Steps[list[WorktreeView]]:
        """List the work folders (git worktrees or copies) of all sessions, newest first."""
        found: list[WorktreeView] = []
        cursor: str | None = None
        while True:
            page = yield from reads(Page[WorktreeView], request(LIST, cursor=cursor))
            found += page.items
            cursor = page.next
            if cursor is None:
                return found

    @calls(AUDIT)
    def audit_worktrees(self, *, repair: bool = False) -> FolderAuditView:
        """Start on each worker host a session that compares the work folders with the store.

        Wait for each session's end: its result text is a `FolderFindings` as JSON. With `repair`
        what can be repaired is; what holds work that is nowhere else stays. Needs the scope admin.
        """

    @calls(CLEAN)
    def clean_worktrees(
        self, session: str, tasks: Sequence[str] = (), *, force: bool = False
    ) -> CleaningView:
        """Start a session that removes the work folders of a plan's ended tasks: of all or some.

        The folder that an ended session has to itself is removed as well.

        A folder with changes or commits that are nowhere else stays, unless `force` is given; then
        its changes are committed, and its branch stays. Wait for the session's end, and read
        `worktrees` for what became of each. Raises PlanRefused.
        """

    @calls(MERGES)
    def merges(self, session: str) -> list[MergeView]:
        """List the merges of a plan's accepted tasks, in the order of the plan. Raises NoPlan."""

    @Op
    def apply_plan(self, session: str, *, branch: str | None = None) -> Steps[HomeView]:
        """Start a session that fast-forwards a branch of the user's to the plan's merged work.

        By default it is the branch that is checked out in the plan's folder. Wait for the session's
        end: it fails with the reason if the branch must be left alone. Raises PlanRefused.
        """
        body = yield from self._with_environment({"branch": branch} if branch else {}, None)
        return (yield from reads(HomeView, request(APPLY_PLAN, session, body=body)))

    @calls(DIFF_PLAN)
    def diff_plan(
        self, session: str, *, task: str | None = None, unmerged: bool = False
    ) -> HomeView:
        """Start a session whose result text is the diff of a plan or of one of its tasks.

        With `unmerged` it has what is not merged yet. Raises PlanRefused.
        """

    @Op
    def apply(
        self,
        session: str,
        *,
        force: bool = False,
        recheck: Literal["commands", "all", "none"] = "commands",
        env: Mapping[str, str] | None = None,
    ) -> Steps[ApplyingView]:
        """Start a session that applies another session's work to the folder where that started.

        For sessions with `worktree`. With `force` also work that was not accepted. `recheck` says
        which of its checkers judge the merged work, if that is another tree than they saw: those
        that are no agents, all, or none; they get the variables `env`, as of `submit`. Wait for the
        end of the session that is returned: it fails with the reason if nothing was applied.
        Raises ControlRefused.
        """
        body = yield from self._with_environment({"force": force, "recheck": recheck}, env)
        return (yield from reads(ApplyingView, request(APPLY, session, body=body)))
