# Generated from async_plan_calls.py by scripts/client.py: do not edit.
"""The operations on plans of the synchronous client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from leadhand.client import plans
from leadhand.client.calls import Call
from leadhand.client.plans import Change, Operations
from leadhand.client.requests import M, parsed
from leadhand.client.submit.environment_calls import EnvironmentCalls
from leadhand.errors import AnswerUnwanted, PlanChanged, PlanRefused
from leadhand.models.plans import Proposal
from leadhand.models.views import (
    ApplyingView,
    CleaningView,
    FolderAuditView,
    HomeView,
    MergeView,
    Page,
    PlanView,
    ReportView,
    TaskView,
    WorktreeView,
)


class PlanCalls(EnvironmentCalls):
    """Reads and changes plans, and reports about their tasks."""

    def plan(self, session: str) -> PlanView:
        """Get a session's plan with its tasks, state and proposals. Raises NoPlan without one."""
        return self._read(PlanView, plans.reading(session))

    def plan_tasks(self, session: str) -> list[TaskView]:
        """List the tasks of a session's plan, in the order of the plan."""
        return (self._read(Page[TaskView], plans.task_list(session))).items

    def plan_task(self, session: str, task: str) -> TaskView:
        """Get one task of a session's plan by its id. Raises TaskUnknown."""
        return self._read(TaskView, plans.task(session, task))

    def edit_plan(
        self, session: str, operations: Operations, *, seen: PlanView | int | None = None
    ) -> PlanView:
        """Apply edits (add, change, drop, move, retry) to a plan's tasks: all of them, or none.

        An operation is `{"op": "add", "task": {...}}`, `{"op": "change", "id": ..., ...}`, or
        `drop`, `move` (behind the task `after`, or to the front) or `retry` of a task by `id`.
        `seen` is the plan or the version that you read; PlanChanged is raised if it has changed
        since, and has the plan as it is now. Raises PlanRefused.
        """
        return self._change(plans.editing(session, operations, seen))

    def approve_plan(self, session: str, *, seen: PlanView | int | None = None) -> PlanView:
        """Approve a plan's draft, so that its tasks start. Raises AnswerUnwanted.

        `seen` is the plan or the version that you read; PlanChanged is raised if it has changed
        since, and has the plan as it is now.
        """
        return self._change(plans.approval(session, seen))

    def change_plan(self, session: str, text: str) -> PlanView:
        """Ask the plan's team lead (an agent) for another draft. Raises AnswerUnwanted."""
        return self._change(plans.change(session, text))

    def decide_proposal(self, session: str, proposal: str, *, accept: bool) -> PlanView:
        """Accept or refuse a task or edit that was proposed for a plan. Raises PlanRefused."""
        return self._change(plans.decision(session, proposal, accept=accept))

    def own_task(self, session: str) -> TaskView:
        """Get the task of its parent's plan that a child session carries out. Raises NoPlan."""
        return self._read(TaskView, plans.own_task(session))

    def report(
        self,
        session: str,
        status: str,
        *,
        pr_url: str | None = None,
        notes: str | None = None,
        proposals: Sequence[Proposal | Mapping[str, Any]] = (),
    ) -> ReportView:
        """Report the status of the task that a child session carries out to its parent's plan.

        `status` is pending, in_progress, completed, failed or blocked. Raises NoPlan if the
        session carries out no task, and ReportLate if it came too late.
        """
        return self._read(ReportView, plans.report(session, status, pr_url, notes, proposals))

    def worktrees(self, session: str) -> list[WorktreeView]:
        """List the work folders of a plan's tasks, in plan order, or a session's own work folder.

        Raises NoPlan for a session that has neither.
        """
        return (self._read(Page[WorktreeView], plans.worktree_list(session))).items

    def all_worktrees(self) -> list[WorktreeView]:
        """List the work folders (git worktrees or copies) of all sessions, newest first."""
        found: list[WorktreeView] = []
        cursor: str | None = None
        while True:
            page = self._read(Page[WorktreeView], plans.every_worktree(cursor))
            found += page.items
            cursor = page.next
            if cursor is None:
                return found

    def audit_worktrees(self, *, repair: bool = False) -> FolderAuditView:
        """Start on each worker host a session that compares the work folders with the store.

        Wait for each session's end: its result text is a `FolderFindings` as JSON. With `repair`
        what can be repaired is; what holds work that is nowhere else stays. Needs the scope admin.
        """
        return self._read(FolderAuditView, plans.folder_audit(repair=repair))

    def clean_worktrees(
        self, session: str, tasks: Sequence[str] = (), *, force: bool = False
    ) -> CleaningView:
        """Start a session that removes the work folders of a plan's ended tasks: of all or some.

        The folder that an ended session has to itself is removed as well.

        A folder with changes or commits that are nowhere else stays, unless `force` is given; then
        its changes are committed, and its branch stays. Wait for the session's end, and read
        `worktrees` for what became of each. Raises PlanRefused.
        """
        return self._read(CleaningView, plans.cleaning(session, tasks, force=force))

    def merges(self, session: str) -> list[MergeView]:
        """List the merges of a plan's accepted tasks, in the order of the plan. Raises NoPlan."""
        return (self._read(Page[MergeView], plans.merge_list(session))).items

    def apply_plan(self, session: str, *, branch: str | None = None) -> HomeView:
        """Start a session that fast-forwards a branch of the user's to the plan's merged work.

        By default it is the branch that is checked out in the plan's folder. Wait for the session's
        end: it fails with the reason if the branch must be left alone. Raises PlanRefused.
        """
        return self._read(HomeView, plans.plan_applying(session, branch))

    def diff_plan(
        self, session: str, *, task: str | None = None, unmerged: bool = False
    ) -> HomeView:
        """Start a session whose result text is the diff of a plan or of one of its tasks.

        With `unmerged` it has what is not merged yet. Raises PlanRefused.
        """
        return self._read(HomeView, plans.comparison(session, task, unmerged=unmerged))

    def apply(
        self,
        session: str,
        *,
        force: bool = False,
        recheck: Literal["commands", "all", "none"] = "commands",
        env: Mapping[str, str] | None = None,
    ) -> ApplyingView:
        """Start a session that applies another session's work to the folder where that started.

        For sessions with `worktree`. With `force` also work that was not accepted. `recheck` says
        which of its checkers judge the merged work, if that is another tree than they saw: those
        that are no agents, all, or none; they get the variables `env`, as of `submit`. Wait for the
        end of the session that is returned: it fails with the reason if nothing was applied.
        Raises ControlRefused.
        """
        fields = self._with_environment({"force": force, "recheck": recheck}, env)
        return self._read(ApplyingView, plans.applying(session, **fields))

    def _read(self, model: type[M], call: Call) -> M:
        return parsed(model, (self._connection.transport.send(call)).checked())

    def _change(self, change: Change) -> PlanView:
        answer = self._connection.transport.send(change.call)
        try:
            return parsed(PlanView, answer.checked())
        except (AnswerUnwanted, PlanRefused, PlanChanged):
            if answer.repeated:
                view = self.plan(change.session)
                if change.is_done(view):
                    return view
            raise
