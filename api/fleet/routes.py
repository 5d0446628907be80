"""REST routes for the fleet: workers, agents, tools, queues, overview, audit and metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated

from flask import Blueprint, Response
from pydantic import BaseModel, Field

from api import requests
from api.fleet.metrics import MEDIA_TYPE, families, render_metrics
from api.folder import FolderQuery, found_here
from api.responses import answer
from app.engine import Engine
from app.operations.submission.drafts import Found
from leadhand.models.views import AgentView, Page, QueueView, ToolView, WorkerView


class FsckBody(requests.Body):
    """Whether to repair findings, and the cursor of the audit."""

    repair: bool = False
    cursor: Annotated[str, Field(pattern=r"^[0-9]{1,18}$")] | None = None


def blueprints(engine: Engine) -> Iterator[Blueprint]:
    """Yields the Flask blueprints of the fleet: workers, agents, tools, queues and metrics."""
    reads = engine.fleet

    def tools(found: Found) -> Page[ToolView]:
        flows = engine.catalog_of(found.folder, found.free).flows()
        return Page[ToolView](items=reads.tools(found.definitions, flows))

    yield _list(
        engine, "workers", lambda found: Page[WorkerView](items=reads.workers(found.definitions))
    )
    yield _list(
        engine, "agents", lambda found: Page[AgentView](items=reads.agents(found.definitions))
    )
    yield _list(engine, "tools", tools)
    yield _fleet(engine)


def _list(engine: Engine, noun: str, page: Callable[[Found], BaseModel]) -> Blueprint:
    routes = Blueprint(noun, __name__, url_prefix=f"/v1/{noun}")

    def list_all() -> Response:
        return answer(page(found_here(engine, requests.query(FolderQuery))))

    routes.add_url_rule("", "listed", list_all)
    return routes


def _fleet(engine: Engine) -> Blueprint:
    routes = Blueprint("fleet", __name__)

    def queues() -> Response:
        requests.query(requests.NoQuery)
        return answer(Page[QueueView](items=engine.fleet.queues()))

    def fleet() -> Response:
        requests.query(requests.NoQuery)
        return answer(engine.fleet.overview())

    def fsck() -> Response:
        requests.query(requests.NoQuery)
        asked = requests.body(FsckBody)
        return answer(engine.audit.run(cursor=asked.cursor, repair=asked.repair))

    def metrics() -> Response:
        requests.query(requests.NoQuery)
        text = render_metrics(families(engine.fleet.overview(), engine.fleet.recent_ends()))
        return Response(text, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})

    routes.add_url_rule("/v1/queues", "queues", queues)
    routes.add_url_rule("/v1/fleet", "fleet", fleet)
    routes.add_url_rule("/v1/fsck", "fsck", fsck, methods=["POST"])
    routes.add_url_rule("/metrics", "metrics", metrics)
    return routes
