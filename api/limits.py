"""Limits over HTTP: how many attempts with a key may run at once, and begin in a minute."""

from __future__ import annotations

from typing import Annotated

from flask import Blueprint, Response
from pydantic import Field, model_validator

from api import bodies
from api.answers import answer
from api.port import Engine
from app.views import Limit, Page

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

    def put(self, kind: str, name: str) -> Response:
        bodies.query(bodies.NoQuery)
        asked = bodies.body(LimitBody)
        limit = self._engine.limit(
            f"{kind}:{name}", concurrency=asked.concurrency, per_minute=asked.per_minute
        )
        return answer(limit)

    def delete(self, kind: str, name: str) -> Response:
        bodies.query(bodies.NoQuery)
        self._engine.unlimit(f"{kind}:{name}")
        return Response(status=204)


def blueprint(engine: Engine) -> Blueprint:
    limits = Limits(engine)
    routes = Blueprint("limits", __name__, url_prefix="/v1/limits")
    one = f"/<any({', '.join(KINDS)}):kind>/<path:name>"
    routes.add_url_rule("", "listed", limits.listed)
    routes.add_url_rule(one, "put", limits.put, methods=["PUT"])
    routes.add_url_rule(one, "delete", limits.delete, methods=["DELETE"])
    return routes
