"""REST routes for concurrency and rate limits."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response, request
from pydantic import Field, model_validator

from api import requests
from api.responses import answer
from app.engine import Engine
from app.operations.limits import SeenLimit
from leadhand.models.etags import limit_etag, parse_limit_etag
from leadhand.models.views import Limit, Page

#: Kinds of keys: a named agent, a model, a custom key, or a queue.
KINDS = ("agent", "model", "key", "queue")


class LimitBody(requests.Body):
    """A limit; at least one of the two fields is required."""

    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    per_minute: Annotated[float, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _check_not_empty(self) -> LimitBody:
        if self.concurrency is None and self.per_minute is None:
            raise ValueError("give concurrency, per_minute or both")
        return self


class Limits:
    """One method per route."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def list_all(self) -> Response:
        """GET /v1/limits: list all concurrency and rate limits."""
        requests.query(requests.NoQuery)
        return answer(Page[Limit](items=self._engine.limits.all_limits()))

    def one(self, kind: str, name: str) -> Response:
        """GET /v1/limits/KEY: show a concurrency or rate limit, with its ETag."""
        requests.query(requests.NoQuery)
        return _with_tag(self._engine.limits.limit_of(f"{kind}:{name}"))

    def put(self, kind: str, name: str) -> Response:
        """PUT /v1/limits/KEY: set a concurrency or rate limit, if it matches If-Match."""
        requests.query(requests.NoQuery)
        asked = requests.body(LimitBody)
        limit = self._engine.limits.set_limit(
            f"{kind}:{name}",
            concurrency=asked.concurrency,
            per_minute=asked.per_minute,
            seen=_if_match(),
        )
        return _with_tag(limit)

    def delete(self, kind: str, name: str) -> Response:
        """DELETE /v1/limits/KEY: remove a concurrency or rate limit, if it matches If-Match."""
        requests.query(requests.NoQuery)
        self._engine.limits.remove_limit(f"{kind}:{name}", seen=_if_match())
        return Response(status=204)


def _with_tag(limit: Limit) -> Response:
    tag = limit_etag(limit.concurrency, limit.per_minute)
    return answer(limit, headers={"ETag": tag})


def _if_match() -> SeenLimit | None:
    """The limits that If-Match accepts; None without the header."""
    given = request.headers.get("If-Match")
    if given is None:
        return None
    if given.strip() == "*":
        return "any"
    found = [parse_limit_etag(tag) for tag in given.split(",")]
    return [
        Limit.model_construct(key="", concurrency=c, per_minute=p) for c, p in filter(None, found)
    ]


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint with the routes of concurrency and rate limits."""
    limits = Limits(engine)
    routes = Blueprint("limits", __name__, url_prefix="/v1/limits")
    one = f"/<any({', '.join(KINDS)}):kind>/<path:name>"
    routes.add_url_rule("", "listed", limits.list_all)
    routes.add_url_rule(one, "one", limits.one)
    routes.add_url_rule(one, "put", limits.put, methods=["PUT"])
    routes.add_url_rule(one, "delete", limits.delete, methods=["DELETE"])
    return routes
