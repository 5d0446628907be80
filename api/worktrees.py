"""REST routes for the folders of a plan's tasks: list them, and remove those of ended tasks."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response
from pydantic import Field

from api import requests
from api.responses import answer
from app.engine import Engine
from leadhand.models.plans import TaskId
from leadhand.models.views import Page, WorktreeView


class CleanBody(requests.Body):
    """Which folders are removed."""

    #: The tasks whose folders are removed; without any, those of all tasks.
    tasks: Annotated[list[TaskId], Field(default_factory=list, max_length=500)]
    #: Also those with changes or commits that are nowhere else: changes are committed to the
    #: branch, which stays. A copy is deleted with all its work.
    force: bool = False


class Worktrees:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self, session: str) -> Response:
        """GET .../worktrees: list the folders of a plan's tasks."""
        requests.query(requests.NoQuery)
        found = self._engine.worktrees.list_all(session)
        return answer(Page[WorktreeView](items=found))

    def clean(self, session: str) -> Response:
        """POST .../worktrees/clean: remove the folders of ended tasks."""
        requests.query(requests.NoQuery)
        asked = requests.body(CleanBody)
        return answer(self._engine.worktrees.clean(session, asked.tasks, force=asked.force), 202)


def blueprint(engine: Engine) -> Blueprint:
    worktrees = Worktrees(engine)
    routes = Blueprint("worktrees", __name__, url_prefix="/v1/sessions/<session:session>/worktrees")
    routes.add_url_rule("", "listed", worktrees.list_all)
    routes.add_url_rule("/clean", "clean", worktrees.clean, methods=["POST"])
    return routes
