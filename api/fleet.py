"""Serves the operations on the fleet: workers, agents, tools, queues, audit and statistics."""

from __future__ import annotations

from datetime import date, timedelta

from flask import Response

from api.folder import found_here
from api.metrics import MEDIA_TYPE, families, render_metrics
from api.serving import Call, serves
from app.engine import Engine
from app.queries.statistics import MOST_DAYS, today
from leadhand.contract import fleet
from leadhand.contract.bodies import NoQuery
from leadhand.contract.fleet import FolderQuery
from leadhand.errors import RequestInvalid
from leadhand.models.problems import FieldProblem
from leadhand.models.views.audit import FsckView
from leadhand.models.views.fleet import AgentView, FleetView, QueueView, ToolView, WorkerView
from leadhand.models.views.statistics import StatisticsView
from leadhand.models.views.view import Page

#: The period of statistics without parameters, in days.
DEFAULT_DAYS = 7


@serves(fleet.WORKERS)
def workers(engine: Engine, _: Call, asked: FolderQuery) -> Page[WorkerView]:
    """Lists the live workers, with the agents and tools that each has for a folder."""
    return Page[WorkerView](items=engine.fleet.workers(found_here(engine, asked).definitions))


@serves(fleet.AGENTS)
def agents(engine: Engine, _: Call, asked: FolderQuery) -> Page[AgentView]:
    """Lists the agents, and where each can be used."""
    return Page[AgentView](items=engine.fleet.agents(found_here(engine, asked).definitions))


@serves(fleet.TOOLS)
def tools(engine: Engine, _: Call, asked: FolderQuery) -> Page[ToolView]:
    """Lists the tools, those that are flows included."""
    found = found_here(engine, asked)
    flows = engine.catalog_of(found.folder, found.free).flows()
    return Page[ToolView](items=engine.fleet.tools(found.definitions, flows))


@serves(fleet.QUEUES)
def queues(engine: Engine, _call: Call, _: NoQuery) -> Page[QueueView]:
    """Lists the queues."""
    return Page[QueueView](items=engine.fleet.queues())


@serves(fleet.OVERVIEW)
def overview(engine: Engine, _call: Call, _: NoQuery) -> FleetView:
    """Shows an overview of the fleet."""
    return engine.fleet.overview()


@serves(fleet.FSCK)
def fsck(engine: Engine, _: Call, asked: fleet.FsckBody) -> FsckView:
    """Audits a batch of the data in Redis and the broker."""
    return engine.audit.run(cursor=asked.cursor, repair=asked.repair)


@serves(fleet.METRICS)
def metrics(engine: Engine, _call: Call, _: NoQuery) -> Response:
    """Returns the fleet as metrics of Prometheus."""
    text = render_metrics(families(engine.fleet.overview(), engine.fleet.recent_ends()))
    return Response(text, content_type=MEDIA_TYPE, headers={"Cache-Control": "no-store"})


@serves(fleet.STATISTICS)
def statistics(engine: Engine, _: Call, asked: fleet.StatisticsQuery) -> StatisticsView:
    """Returns counts and sums of a period."""
    return engine.statistics.of(*_period(asked))


def _period(asked: fleet.StatisticsQuery) -> tuple[date, date]:
    """The first and the last day. Raises Refused if reversed or too far apart."""
    last = asked.last or today()
    first = asked.first or last - timedelta(days=DEFAULT_DAYS - 1)
    if first > last:
        raise _refuse("first", first, f"it is after the last day, {last}; give an earlier one")
    if (last - first).days >= MOST_DAYS:
        raise _refuse("first", first, f"give a period of at most {MOST_DAYS} days")
    return first, last


def _refuse(field: str, value: date, message: str) -> Exception:
    problem = FieldProblem(field=field, message=message, place="query", value=str(value))
    return RequestInvalid.of_fields((problem,))
