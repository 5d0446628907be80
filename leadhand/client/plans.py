"""The operations on plans, reports about their tasks, and the work folders of sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import ValidationError

from leadhand.client.calls import Answer, Call
from leadhand.client.operation import Ask, Op, Steps
from leadhand.client.requests import idempotent, items, parsed, reads, request
from leadhand.client.submit import Submissions
from leadhand.contract import folders, plans
from leadhand.errors import AnswerUnwanted, PlanChanged, PlanRefused, local_error
from leadhand.models.etags import plan_etag
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlanEdit,
    PlanOperation,
    Proposal,
    RetryTask,
    TaskReport,
)
from leadhand.models.problems import Kind
from leadhand.models.validation_messages import first_error
from leadhand.models.views.audit import FolderAuditView
from leadhand.models.views.folder import ApplyingView
from leadhand.models.views.plan import (
    CleaningView,
    HomeView,
    MergeView,
    PlanView,
    ReportView,
    TaskView,
    WorktreeView,
)
from leadhand.models.views.view import Page

#: Operations as models, or as the fields of one.
Operations = Iterable[PlanOperation | Mapping[str, Any]]


class Plans(Submissions):
    """Reads and changes plans, reports about their tasks, and keeps the folders of both."""

    @Op
    def plan(self, session: str) -> Ask[PlanView]:
        """Get a session's plan with its tasks, state and proposals. Raises NoPlan without one."""
        return reads(PlanView, request(plans.SHOW, session))

    @Op
    def plan_tasks(self, session: str) -> Ask[list[TaskView]]:
        """List the tasks of a session's plan, in the order of the plan."""
        return items(Page[TaskView], request(plans.TASKS, session))

    @Op
    def plan_task(self, session: str, task: str) -> Ask[TaskView]:
        """Get one task of a session's plan by its id. Raises TaskUnknown."""
        return reads(TaskView, request(plans.TASK, session, task))

    @Op
    def edit_plan(
        self, session: str, operations: Operations, *, seen: PlanView | int | None = None
    ) -> Steps[PlanView]:
        """Apply edits (add, change, drop, move, retry) to a plan's tasks: all of them, or none.

        An operation is `{"op": "add", "task": {...}}`, `{"op": "change", "id": ..., ...}`, or
        `drop`, `move` (behind the task `after`, or to the front) or `retry` of a task by `id`.
        `seen` is the plan or the version that you read; PlanChanged is raised if it has changed
        since, and has the plan as it is now. Raises PlanRefused.
        """
        try:
            edit = PlanEdit.model_validate({"operations": tuple(operations)})
        except ValidationError as error:
            raise local_error(Kind.INVALID, first_error(error)) from None
        body = {"operations": [fields_of(one) for one in edit.operations]}
        call = request(plans.EDIT, session, headers=_if_match(seen), body=body)
        return self._change(session, call, lambda plan: shows(plan, edit))

    @Op
    def approve_plan(self, session: str, *, seen: PlanView | int | None = None) -> Steps[PlanView]:
        """Approve a plan's draft, so that its tasks start. Raises AnswerUnwanted.

        `seen` is the plan or the version that you read; PlanChanged is raised if it has changed
        since, and has the plan as it is now.
        """
        call = request(plans.APPROVE, session, headers=_if_match(seen))
        return self._change(session, call, lambda plan: plan.state in ("executing", "ended"))

    @Op
    def change_plan(self, session: str, text: str) -> Steps[PlanView]:
        """Ask the plan's team lead (an agent) for another draft. Raises AnswerUnwanted."""
        call = request(plans.CHANGE, session, body={"text": text})
        return self._change(session, call, lambda plan: plan.state == "planning")

    @Op
    def decide_proposal(self, session: str, proposal: str, *, accept: bool) -> Steps[PlanView]:
        """Accept or refuse a task or edit that was proposed for a plan. Raises PlanRefused."""
        wanted = (proposal, "accepted" if accept else "refused")
        return self._change(
            session,
            request(plans.DECIDE, session, proposal, body={"accept": accept}),
            lambda plan: any((one.id, one.status) == wanted for one in plan.proposals),
        )

    @Op
    def own_task(self, session: str) -> Ask[TaskView]:
        """Get the task of its parent's plan that a child session carries out. Raises NoPlan."""
        return reads(TaskView, request(plans.OWN_TASK, session))

    @Op
    def report(
        self,
        session: str,
        status: str,
        *,
        pr_url: str | None = None,
        notes: str | None = None,
        proposals: Sequence[Proposal | Mapping[str, Any]] = (),
    ) -> Ask[ReportView]:
        """Report the status of the task that a child session carries out to its parent's plan.

        `status` is pending, in_progress, completed, failed or blocked. Raises NoPlan if the
        session carries out no task, and ReportLate if it came too late.
        """
        fields = {"status": status, "pr_url": pr_url, "notes": notes, "proposals": (*proposals,)}
        try:
            found = TaskReport.model_validate({name: one for name, one in fields.items() if one})
        except ValidationError as error:
            raise local_error(Kind.INVALID, first_error(error)) from None
        body = found.model_dump(mode="json", exclude_unset=True)
        return reads(ReportView, request(plans.REPORT, session, body=body, headers=idempotent()))

    @Op
    def worktrees(self, session: str) -> Ask[list[WorktreeView]]:
        """List the work folders of a plan's tasks, in plan order, or a session's own work folder.

        Raises NoPlan for a session that has neither.
        """
        return items(Page[WorktreeView], request(folders.OF_SESSION, session))

    @Op
    def all_worktrees(self) -> Steps[list[WorktreeView]]:
        """List the work folders (git worktrees or copies) of all sessions, newest first."""
        found: list[WorktreeView] = []
        cursor: str | None = None
        while True:
            page = yield from reads(Page[WorktreeView], request(folders.LIST, cursor=cursor))
            found += page.items
            cursor = page.next
            if cursor is None:
                return found

    @Op
    def audit_worktrees(self, *, repair: bool = False) -> Ask[FolderAuditView]:
        """Start on each worker host a session that compares the work folders with the store.

        Wait for each session's end: its result text is a `FolderFindings` as JSON. With `repair`
        what can be repaired is; what holds work that is nowhere else stays. Needs the scope admin.
        """
        return reads(FolderAuditView, request(folders.AUDIT, body={"repair": repair}))

    @Op
    def clean_worktrees(
        self, session: str, tasks: Sequence[str] = (), *, force: bool = False
    ) -> Ask[CleaningView]:
        """Start a session that removes the work folders of a plan's ended tasks: of all or some.

        The folder that an ended session has to itself is removed as well.

        A folder with changes or commits that are nowhere else stays, unless `force` is given; then
        its changes are committed, and its branch stays. Wait for the session's end, and read
        `worktrees` for what became of each. Raises PlanRefused.
        """
        body = {"tasks": list(tasks), "force": force}
        return reads(CleaningView, request(folders.CLEAN, session, body=body))

    @Op
    def merges(self, session: str) -> Ask[list[MergeView]]:
        """List the merges of a plan's accepted tasks, in the order of the plan. Raises NoPlan."""
        return items(Page[MergeView], request(folders.MERGES, session))

    @Op
    def apply_plan(self, session: str, *, branch: str | None = None) -> Ask[HomeView]:
        """Start a session that fast-forwards a branch of the user's to the plan's merged work.

        By default it is the branch that is checked out in the plan's folder. Wait for the session's
        end: it fails with the reason if the branch must be left alone. Raises PlanRefused.
        """
        return reads(HomeView, request(folders.APPLY_PLAN, session, body={"branch": branch}))

    @Op
    def diff_plan(
        self, session: str, *, task: str | None = None, unmerged: bool = False
    ) -> Ask[HomeView]:
        """Start a session whose result text is the diff of a plan or of one of its tasks.

        With `unmerged` it has what is not merged yet. Raises PlanRefused.
        """
        body = {"task": task, "unmerged": unmerged}
        return reads(HomeView, request(folders.DIFF_PLAN, session, body=body))

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
        return (yield from reads(ApplyingView, request(folders.APPLY, session, body=body)))

    def _change(
        self, session: str, call: Call, is_done: Callable[[PlanView], bool]
    ) -> Steps[PlanView]:
        """Change a plan; a call that was repeated may have been carried out before."""
        answer: Answer = yield call
        try:
            return parsed(PlanView, answer)
        except (AnswerUnwanted, PlanRefused, PlanChanged):
            if answer.repeated:
                view = yield from self.plan(session)
                if is_done(view):
                    return view
            raise


def _if_match(seen: PlanView | int | None) -> dict[str, str]:
    """The header by which a change is refused if the plan is not the one that was read."""
    version = seen.version if isinstance(seen, PlanView) else seen
    return {} if version is None else {"If-Match": plan_etag(version)}


def fields_of(operation: PlanOperation) -> dict[str, Any]:
    """Returns a plan edit as JSON data: its `op` and the fields that are set, even to null."""
    return {"op": operation.op, **operation.model_dump(mode="json", exclude_unset=True)}


def shows(plan: PlanView, edit: PlanEdit) -> bool:
    """Whether a plan already has the effect of an edit, so that an earlier try succeeded."""
    tasks = {one.id: one for one in plan.tasks}
    order = [one.id for one in plan.tasks]
    return all(_is_seen(one, tasks, order) for one in edit.operations)


def _is_seen(one: PlanOperation, tasks: Mapping[str, TaskView], order: Sequence[str]) -> bool:
    match one:
        case AddTask():
            found = tasks.get(one.task.id)
            return found is not None and _has(found, one.task.model_dump(exclude_unset=True))
        case ChangeTask():
            found = tasks.get(one.id)
            fields = one.model_dump(exclude_unset=True, exclude={"op", "id"})
            return found is not None and _has(found, fields)
        case DropTask():
            return one.id not in tasks
        case MoveTask():
            before = [None, *order][order.index(one.id)] if one.id in tasks else one.id
            return before == one.after
        case RetryTask():
            return one.id in tasks and tasks[one.id].status not in ("failed", "blocked")


def _has(found: TaskView, fields: Mapping[str, Any]) -> bool:
    shown = found.model_dump()
    return all(
        shown[name] == (list(value) if isinstance(value, tuple) else value)
        for name, value in fields.items()
        if name in shown
    )
