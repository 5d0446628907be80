"""Serves the operations on concurrency and rate limits."""

from __future__ import annotations

from flask import Response

from api.responses import answer
from api.serving import Call, serves
from app.engine import Engine
from app.operations.limits import SeenLimit
from leadhand.contract import fleet
from leadhand.contract.bodies import NoQuery
from leadhand.models.etags import limit_etag, parse_limit_etag
from leadhand.models.views.fleet import Limit
from leadhand.models.views.view import Page


@serves(fleet.LIMITS)
def list_all(engine: Engine, _call: Call, _: NoQuery) -> Page[Limit]:
    """Lists all concurrency and rate limits."""
    return Page[Limit](items=engine.limits.all_limits())


@serves(fleet.LIMIT)
def show(engine: Engine, call: Call, _: NoQuery) -> Response:
    """Shows a concurrency or rate limit, with its ETag."""
    return _with_tag(engine.limits.limit_of(_key(call)))


@serves(fleet.SET_LIMIT)
def put(engine: Engine, call: Call, asked: fleet.LimitBody) -> Response:
    """Sets a concurrency or rate limit, if it matches If-Match."""
    limit = engine.limits.set_limit(
        _key(call),
        concurrency=asked.concurrency,
        per_minute=asked.per_minute,
        seen=_seen(call.if_match),
    )
    return _with_tag(limit)


@serves(fleet.REMOVE_LIMIT)
def delete(engine: Engine, call: Call, _: NoQuery) -> None:
    """Removes a concurrency or rate limit, if it matches If-Match."""
    engine.limits.remove_limit(_key(call), seen=_seen(call.if_match))


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
