"""REST routes for the folders of tasks and sessions: list, apply and remove them."""

from __future__ import annotations

from typing import Annotated, Literal

from flask import Blueprint, Response
from pydantic import Field

from api import requests
from api.auth import allow, may_bring_commands
from api.responses import answer
from app.domain.environment.session import environment_of
from app.engine import Engine
from leadhand.models.plans import BranchName, TaskId
from leadhand.models.session_environment import WithEnvironment
from leadhand.models.views import MergeView, Page, WorktreeView


class CleanBody(requests.Body):
    """Which folders are removed."""

    #: The tasks whose folders are removed; without any, those of all tasks.
    tasks: Annotated[list[TaskId], Field(default_factory=list, max_length=500)]
    #: Also those with changes or commits that are nowhere else: changes are committed to the
    #: branch, which stays. A copy is deleted with all its work.
    force: bool = False


class ApplyBody(requests.Body, WithEnvironment):
    """Which work is applied, and which checkers judge it once it is merged."""

    #: Also work that was not accepted.
    force: bool = False
    #: Which of the checkers that accepted the work run on the merged work, if that is another tree
    #: than they saw: those that are no agents, all, or none.
    recheck: Literal["commands", "all", "none"] = "commands"


class ApplyPlanBody(requests.Body):
    """Which branch gets the work of a plan."""

    #: By default the branch that is checked out in the plan's folder.
    branch: BranchName | None = None


class DiffBody(requests.Body):
    """What is compared: a task, or all of the plan; with `unmerged` what is not merged yet."""

    unmerged: bool = False
    task: TaskId | None = None


class FolderAuditBody(requests.Body):
    """Whether findings are repaired."""

    repair: bool = False


class FoldersQuery(requests.Query):
    """Which page of the list."""

    cursor: Annotated[str, Field(max_length=200)] | None = None


class Worktrees:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_every(self) -> Response:
        """GET /v1/worktrees: list the worktree folders of all sessions, newest first."""
        return answer(self._engine.folder_index.page(requests.query(FoldersQuery).cursor))

    def audit(self) -> Response:
        """POST /v1/worktrees/audit: start comparing the folders at each place with the store."""
        requests.query(requests.NoQuery)
        asked = requests.body(FolderAuditBody)
        return answer(self._engine.folder_audits.start(repair=asked.repair), 202)

    def list_all(self, session: str) -> Response:
        """GET .../worktrees: list the worktree folders of a plan's tasks, or that of a session."""
        requests.query(requests.NoQuery)
        own = self._engine.own_folders.find(session)
        found = [own] if own is not None else self._engine.worktrees.list_all(session)
        return answer(Page[WorktreeView](items=found))

    def clean(self, session: str) -> Response:
        """POST .../worktrees/clean: start removing the folders of ended tasks, or of a session."""
        requests.query(requests.NoQuery)
        asked = requests.body(CleanBody)
        own = self._engine.own_folders.find(session)
        if own is not None:
            return answer(self._engine.own_folders.clean(own, force=asked.force), 202)
        return answer(self._engine.worktrees.clean(session, asked.tasks, force=asked.force), 202)

    def merges(self, session: str) -> Response:
        """GET .../merges: list the merges of the work of a plan's tasks."""
        requests.query(requests.NoQuery)
        found = self._engine.coming_home.merges(session)
        return answer(Page[MergeView](items=found))

    def apply(self, session: str) -> Response:
        """POST .../apply: start bringing a session's work into the folder it was started in."""
        requests.query(requests.NoQuery)
        asked = requests.body(ApplyBody)
        free = may_bring_commands(self._engine)
        allow(asked, free=free)
        started = self._engine.own_folders.apply(
            session,
            force=asked.force,
            mode=asked.recheck,
            environment=environment_of(asked),
            free=free,
        )
        return answer(started, 202)

    def apply_plan(self, session: str) -> Response:
        """POST .../plan/apply: start fast-forwarding a user's branch to the plan's merged work."""
        requests.query(requests.NoQuery)
        asked = requests.body(ApplyPlanBody)
        return answer(self._engine.coming_home.apply(session, asked.branch or ""), 202)

    def diff(self, session: str) -> Response:
        """POST .../plan/diff: start comparing a task's or plan's work with its start."""
        requests.query(requests.NoQuery)
        asked = requests.body(DiffBody)
        found = self._engine.coming_home.diff(session, asked.task, unmerged=asked.unmerged)
        return answer(found, 202)


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of worktree folders, merges and diffs."""
    worktrees = Worktrees(engine)
    routes = Blueprint("worktrees", __name__, url_prefix="/v1")
    routes.add_url_rule("/worktrees", "all", worktrees.list_every)
    routes.add_url_rule("/worktrees/audit", "audit", worktrees.audit, methods=["POST"])
    one = "/sessions/<session:session>"
    routes.add_url_rule(f"{one}/worktrees", "listed", worktrees.list_all)
    routes.add_url_rule(f"{one}/worktrees/clean", "clean", worktrees.clean, methods=["POST"])
    routes.add_url_rule(f"{one}/merges", "merges", worktrees.merges)
    routes.add_url_rule(f"{one}/apply", "apply", worktrees.apply, methods=["POST"])
    routes.add_url_rule(f"{one}/plan/apply", "apply_plan", worktrees.apply_plan, methods=["POST"])
    routes.add_url_rule(f"{one}/plan/diff", "diff", worktrees.diff, methods=["POST"])
    return routes
