"""Serves the operations on plans, their tasks, folders and merges, and the audit of folders."""

from __future__ import annotations

from collections.abc import Callable

from api.auth import allow, current_author, current_caller, current_visitor, may_bring_commands
from api.serving import Call, serves
from app import folders as app_folders
from app.core.environment import environment_of
from app.engine import Engine
from app.plans import plans as app_plans
from leadhand.contract import folders, plans
from leadhand.contract.operation import NoBody, NoQuery
from leadhand.errors import PlanChanged, TaskUnknown
from leadhand.models.etags import parse_plan_etag
from leadhand.models.plans import PlanChange, PlanEdit, TaskReport
from leadhand.models.views.fleet import FolderAuditView
from leadhand.models.views.plan import (
    ApplyingView,
    CleaningView,
    HomeView,
    MergeView,
    PlanView,
    ReportView,
    TaskView,
    WorktreeView,
)
from leadhand.models.views.view import Page

#: A version that no plan has: that of an If-Match with unknown tags only.
NO_VERSION = -1


@serves(plans.SHOW)
def show(engine: Engine, call: Call, _: NoQuery) -> PlanView:
    """Returns the plan of a session."""
    return app_plans.show(engine, call.session)


@serves(plans.EDIT)
def edit(engine: Engine, call: Call, asked: PlanEdit) -> PlanView:
    """Applies edits to the tasks of a plan, unless it changed since If-Match."""
    by = current_visitor()
    return _of_version(
        engine, call, lambda seen: app_plans.edit(engine, call.session, asked, version=seen, by=by)
    )


@serves(plans.APPROVE)
def approve(engine: Engine, call: Call, _: NoBody) -> PlanView:
    """Approves the draft of a plan, so that its tasks start."""
    by = current_author()
    return _of_version(
        engine, call, lambda seen: app_plans.approve(engine, call.session, by=by, version=seen)
    )


@serves(plans.CHANGE)
def change(engine: Engine, call: Call, asked: PlanChange) -> PlanView:
    """Asks the team lead (an agent) for another draft of the plan."""
    return app_plans.reject(engine, call.session, asked.text, by=current_author())


@serves(plans.TASKS)
def tasks(engine: Engine, call: Call, _: NoQuery) -> Page[TaskView]:
    """Lists the tasks in the order of the plan."""
    return Page[TaskView](items=app_plans.show(engine, call.session).tasks)


@serves(plans.TASK)
def task(engine: Engine, call: Call, _: NoQuery) -> TaskView:
    """Shows a task."""
    plan, name = app_plans.show(engine, call.session), call.path["task"]
    found = next((one for one in plan.tasks if one.id == name), None)
    if found is None:
        raise TaskUnknown(call.session, name, [one.id for one in plan.tasks])
    return found


@serves(plans.DECIDE)
def decide(engine: Engine, call: Call, asked: plans.Decision) -> PlanView:
    """Accepts or refuses a proposed task or edit of a plan."""
    by, proposal = current_visitor(), call.path["proposal"]
    return _of_version(
        engine,
        call,
        lambda seen: app_plans.decide(
            engine, call.session, proposal, accept=asked.accept, by=by, version=seen
        ),
    )


@serves(plans.OWN_TASK)
def own_task(engine: Engine, call: Call, _: NoQuery) -> TaskView:
    """Shows the task that a child session carries out."""
    return app_plans.read_task(engine, call.session)


@serves(plans.REPORT)
def report(engine: Engine, call: Call, asked: TaskReport) -> ReportView:
    """Reports the status of the child session's task."""
    return app_plans.report(
        engine, call.session, asked, by=current_caller(), idempotency_key=call.key
    )


def _of_version(engine: Engine, call: Call, action: Callable[[int | None], PlanView]) -> PlanView:
    """Changes the version of a plan that If-Match names. Raises Refused with the plan as it is."""
    try:
        return action(_seen(call.if_match))
    except PlanChanged as error:
        raise error.with_plan(app_plans.show(engine, call.session)) from None


def _seen(given: str | None) -> int | None:
    """The version that If-Match accepts; None if it is absent or `*`."""
    if given is None or given.strip() == "*":
        return None
    versions = (parse_plan_etag(tag) for tag in given.split(","))
    return next((version for version in versions if version is not None), NO_VERSION)


@serves(folders.LIST)
def list_every(engine: Engine, _: Call, asked: folders.FoldersQuery) -> Page[WorktreeView]:
    """Lists the worktree folders of all sessions, newest first."""
    return app_folders.list_all(engine, asked.cursor)


@serves(folders.AUDIT)
def audit(engine: Engine, _: Call, asked: folders.FolderAuditBody) -> FolderAuditView:
    """Starts comparing the folders at each place with the store."""
    return app_folders.audit(engine, repair=asked.repair)


@serves(folders.OF_SESSION)
def list_all(engine: Engine, call: Call, _: NoQuery) -> Page[WorktreeView]:
    """Lists the worktree folders of a plan's tasks, or that of a session."""
    own = app_folders.find_own(engine, call.session)
    found = [own] if own is not None else app_folders.list_of_plan(engine, call.session)
    return Page[WorktreeView](items=found)


@serves(folders.CLEAN)
def clean(engine: Engine, call: Call, asked: folders.CleanBody) -> CleaningView:
    """Starts removing the folders of ended tasks, or of a session."""
    own = app_folders.find_own(engine, call.session)
    if own is not None:
        return app_folders.clean_own(engine, own, force=asked.force)
    return app_folders.clean_of_plan(engine, call.session, asked.tasks, force=asked.force)


@serves(folders.MERGES)
def merges(engine: Engine, call: Call, _: NoQuery) -> Page[MergeView]:
    """Lists the merges of the work of a plan's tasks."""
    return Page[MergeView](items=app_plans.list_merges(engine, call.session))


@serves(folders.APPLY)
def apply(engine: Engine, call: Call, asked: folders.ApplyBody) -> ApplyingView:
    """Starts bringing a session's work into the folder it was started in."""
    free = may_bring_commands(engine)
    allow(asked, free=free)
    return app_folders.apply(
        engine,
        call.session,
        force=asked.force,
        mode=asked.recheck,
        environment=environment_of(asked),
        free=free,
    )


@serves(folders.APPLY_PLAN)
def apply_plan(engine: Engine, call: Call, asked: folders.ApplyPlanBody) -> HomeView:
    """Starts fast-forwarding a user's branch to the plan's merged work."""
    allow(asked, free=may_bring_commands(engine))
    return app_plans.apply_work(engine, call.session, asked.branch or "", environment_of(asked))


@serves(folders.DIFF_PLAN)
def diff(engine: Engine, call: Call, asked: folders.DiffBody) -> HomeView:
    """Starts comparing a task's or plan's work with its start."""
    return app_plans.compare_work(engine, call.session, asked.task, unmerged=asked.unmerged)
