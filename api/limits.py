"""Limits over HTTP: how many attempts with a key may run at once, and begin in a minute."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response, request
from pydantic import Field, model_validator

from api import bodies
from api.answers import answer
from api.port import Engine
from app.engine import SeenLimit
from app.views import Limit, Page
from leadhand.etags import limit_etag, limit_seen_in

#: What a key begins with: a named agent, a model, a key of the user's own, or a queue.
KINDS = ("agent", "model", "key", "queue")


class LimitBody(bodies.Body):
    """At least one of the two."""

    concurrency: Annotated[int, Field(ge=1, le=100_000)] | None = None
    per_minute: Annotated[float, Field(gt=0, le=100_000)] | None = None

    @model_validator(mode="after")
    def _limits_something(self) -> LimitBody:
        if self.concurrency is None and self.per_minute is None:
            raise ValueError("give concurrency, per_minute or both")
        return self


class Limits:
    """One method for each thing that can be done with limits."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def listed(self) -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[Limit](items=self._engine.limits()))

    def one(self, kind: str, name: str) -> Response:
        bodies.query(bodies.NoQuery)
        return _with_tag(self._engine.limit_of(f"{kind}:{name}"))

    def put(self, kind: str, name: str) -> Response:
        bodies.query(bodies.NoQuery)
        asked = bodies.body(LimitBody)
        limit = self._engine.limit(
            f"{kind}:{name}",
            concurrency=asked.concurrency,
            per_minute=asked.per_minute,
            seen=_seen(),
        )
        return _with_tag(limit)

    def delete(self, kind: str, name: str) -> Response:
        bodies.query(bodies.NoQuery)
        self._engine.unlimit(f"{kind}:{name}", seen=_seen())
        return Response(status=204)


def _with_tag(limit: Limit) -> Response:
    tag = limit_etag(limit.concurrency, limit.per_minute)
    return answer(limit, headers={"ETag": tag})


def _seen() -> SeenLimit | None:
    """What the sender saw of the limit that is to be changed; None where any or none will do."""
    given = request.headers.get("If-Match")
    if given is None:
        return None
    if given.strip() == "*":
        return "any"
    found = [limit_seen_in(tag) for tag in given.split(",")]
    return [
        Limit.model_construct(key="", concurrency=c, per_minute=p) for c, p in filter(None, found)
    ]


def blueprint(engine: Engine) -> Blueprint:
    limits = Limits(engine)
    routes = Blueprint("limits", __name__, url_prefix="/v1/limits")
    one = f"/<any({', '.join(KINDS)}):kind>/<path:name>"
    routes.add_url_rule("", "listed", limits.listed)
    routes.add_url_rule(one, "one", limits.one)
    routes.add_url_rule(one, "put", limits.put, methods=["PUT"])
    routes.add_url_rule(one, "delete", limits.delete, methods=["DELETE"])
    return routes
