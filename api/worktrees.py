"""Serves the operations on the folders of tasks and sessions: list, apply and remove them."""

from __future__ import annotations

from api.auth import allow, may_bring_commands
from api.serving import Call, serves
from app.domain.environment.session import environment_of
from app.engine import Engine
from leadhand.contract import folders
from leadhand.contract.bodies import NoQuery
from leadhand.models.views.audit import FolderAuditView
from leadhand.models.views.folder import ApplyingView
from leadhand.models.views.plan import CleaningView, HomeView, MergeView, WorktreeView
from leadhand.models.views.view import Page


@serves(folders.LIST)
def list_every(engine: Engine, _: Call, asked: folders.FoldersQuery) -> Page[WorktreeView]:
    """Lists the worktree folders of all sessions, newest first."""
    return engine.folder_index.page(asked.cursor)


@serves(folders.AUDIT)
def audit(engine: Engine, _: Call, asked: folders.FolderAuditBody) -> FolderAuditView:
    """Starts comparing the folders at each place with the store."""
    return engine.folder_audits.start(repair=asked.repair)


@serves(folders.OF_SESSION)
def list_all(engine: Engine, call: Call, _: NoQuery) -> Page[WorktreeView]:
    """Lists the worktree folders of a plan's tasks, or that of a session."""
    own = engine.own_folders.find(call.session)
    found = [own] if own is not None else engine.worktrees.list_all(call.session)
    return Page[WorktreeView](items=found)


@serves(folders.CLEAN)
def clean(engine: Engine, call: Call, asked: folders.CleanBody) -> CleaningView:
    """Starts removing the folders of ended tasks, or of a session."""
    own = engine.own_folders.find(call.session)
    if own is not None:
        return engine.own_folders.clean(own, force=asked.force)
    return engine.worktrees.clean(call.session, asked.tasks, force=asked.force)


@serves(folders.MERGES)
def merges(engine: Engine, call: Call, _: NoQuery) -> Page[MergeView]:
    """Lists the merges of the work of a plan's tasks."""
    return Page[MergeView](items=engine.coming_home.merges(call.session))


@serves(folders.APPLY)
def apply(engine: Engine, call: Call, asked: folders.ApplyBody) -> ApplyingView:
    """Starts bringing a session's work into the folder it was started in."""
    free = may_bring_commands(engine)
    allow(asked, free=free)
    return engine.own_folders.apply(
        call.session,
        force=asked.force,
        mode=asked.recheck,
        environment=environment_of(asked),
        free=free,
    )


@serves(folders.APPLY_PLAN)
def apply_plan(engine: Engine, call: Call, asked: folders.ApplyPlanBody) -> HomeView:
    """Starts fast-forwarding a user's branch to the plan's merged work."""
    return engine.coming_home.apply(call.session, asked.branch or "")


@serves(folders.DIFF_PLAN)
def diff(engine: Engine, call: Call, asked: folders.DiffBody) -> HomeView:
    """Starts comparing a task's or plan's work with its start."""
    return engine.coming_home.diff(call.session, asked.task, unmerged=asked.unmerged)
