"""Serves the operations on the fleet: workers, agents, tools, audit, limits, tokens, health."""

from __future__ import annotations

from datetime import date, timedelta

from flask import Response, g, request

from api.folder import found_here
from api.metrics import MEDIA_TYPE, families, render_metrics
from api.requests import answer
from api.serving import Call, current_api, serves
from app import shared
from app.engine import Engine
from app.fleet.admission import admit_webhook
from app.fleet.overview import MOST_DAYS, read_statistics, today
from app.security.api_tokens import Scope
from app.security.browser_sessions import LINK_S
from app.shared import SeenLimit
from leadhand.contract import fleet, tokens
from leadhand.contract.fleet import FolderQuery, Health
from leadhand.contract.operation import NoBody, NoQuery
from leadhand.errors import RequestInvalid
from leadhand.models.api_proof import NONCE_HEADER, PROOF_HEADER, is_nonce, proof_of
from leadhand.models.etags import limit_etag, parse_limit_etag
from leadhand.models.problems import FieldProblem
from leadhand.models.views.explain import SignInLink
from leadhand.models.views.fleet import (
    AgentView,
    FleetView,
    FsckView,
    Limit,
    NewToken,
    QueueView,
    StatisticsView,
    TokenView,
    ToolView,
    WorkerView,
)
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
    return read_statistics(engine.store, *_period(asked))


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


@serves(fleet.LIMITS)
def list_limits(engine: Engine, _call: Call, _: NoQuery) -> Page[Limit]:
    """Lists all concurrency and rate limits."""
    return Page[Limit](items=shared.list_limits(engine))


@serves(fleet.LIMIT)
def show_limit(engine: Engine, call: Call, _: NoQuery) -> Response:
    """Shows a concurrency or rate limit, with its ETag."""
    return _with_tag(shared.read_limit(engine, _key(call)))


@serves(fleet.SET_LIMIT)
def put(engine: Engine, call: Call, asked: fleet.LimitBody) -> Response:
    """Sets a concurrency or rate limit, if it matches If-Match."""
    limit = shared.set_limit(
        engine,
        _key(call),
        concurrency=asked.concurrency,
        per_minute=asked.per_minute,
        seen=_seen(call.if_match),
    )
    return _with_tag(limit)


@serves(fleet.REMOVE_LIMIT)
def delete(engine: Engine, call: Call, _: NoQuery) -> None:
    """Removes a concurrency or rate limit, if it matches If-Match."""
    shared.remove_limit(engine, _key(call), seen=_seen(call.if_match))


def _key(call: Call) -> str:
    return f"{call.path['kind']}:{call.path['name']}"


def _with_tag(limit: Limit) -> Response:
    tag = limit_etag(limit.concurrency, limit.per_minute)
    return answer(limit, headers={"ETag": tag})


def _seen(given: str | None) -> SeenLimit | None:
    """The limits that If-Match accepts; None without the header."""
    if given is None:
        return None
    if given.strip() == "*":
        return "any"
    found = [parse_limit_etag(tag) for tag in given.split(",")]
    return [
        Limit.model_construct(key="", concurrency=c, per_minute=p) for c, p in filter(None, found)
    ]


@serves(tokens.CREATE)
def create(engine: Engine, call: Call, asked: tokens.NewTokenBody) -> NewToken:
    """Creates an API token with scopes, quotas and an expiry, and returns it."""
    if asked.webhook is not None:
        admit_webhook(asked.webhook, current_api().settings)
    return engine.tokens.create(
        asked.name,
        frozenset(Scope(scope) for scope in asked.scopes),
        expires_s=asked.expires_s,
        quotas=asked.quotas,
        webhook=asked.webhook,
        key=call.key,
    )


@serves(tokens.LIST)
def list_tokens(engine: Engine, _call: Call, _: NoQuery) -> Page[TokenView]:
    """Lists all API tokens."""
    return Page[TokenView](items=engine.tokens.views())


@serves(tokens.REVOKE)
def revoke(engine: Engine, call: Call, _: NoQuery) -> None:
    """Revokes an API token."""
    engine.tokens.revoke(call.path["token"])


@serves(tokens.SIGN_IN_LINK)
def sign_in_link(_engine: Engine, _call: Call, _: NoBody) -> SignInLink:
    """Makes a link that opens the dashboard once, signed in as the caller."""
    api = current_api()
    api.hosts.check_host()
    secret = api.browsers.make_link(g.visitor.token)
    return SignInLink(url=f"{api.hosts.base_url}/ui/sign-in#{secret}", expires_s=LINK_S)


@serves(fleet.ALIVE)
def alive(_engine: Engine, _call: Call, _: None) -> Response:
    """Says that the process is alive, and proves that it is this fleet's."""
    response, settings = answer(Health(status="alive")), current_api().settings
    nonce = request.headers.get(NONCE_HEADER, "")
    if settings.proof_key and is_nonce(nonce):
        port = int(settings.api_bind.rpartition(":")[2])
        response.headers[PROOF_HEADER] = proof_of(settings.proof_key, port, nonce)
    return response


@serves(fleet.READY)
def ready(engine: Engine, _call: Call, _: None) -> Health:
    """Says that the store can be reached and is the expected one."""
    engine.store.ping()
    engine.guard.check()
    return Health(status="ready")
