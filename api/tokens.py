"""API tokens over HTTP: make one, list them, revoke one."""

from __future__ import annotations

from typing import Annotated, Literal

from flask import Blueprint, Response
from pydantic import Field

from api import bodies
from api.answers import answer
from api.port import Engine
from app.admission import admit_webhook
from app.settings import Settings
from app.tokens import Quotas, Scope, TokenView
from app.views import Page
from leadhand.documents import Webhook

#: The longest that a token may be asked to last: ten years.
LONGEST_S = 10 * 365 * 24 * 3600

Count = Annotated[int, Field(ge=0, le=10**15)]


class QuotasBody(bodies.Body):
    """How much the token's sessions may use; what is absent is not limited."""

    max_sessions: Count | None = None
    steps_per_day: Count | None = None
    bytes_per_day: Count | None = None


class NewTokenBody(bodies.Body):
    """The token to make."""

    name: Annotated[str, Field(min_length=1, max_length=120)]
    scopes: Annotated[
        list[Literal["read", "submit", "control", "exec:free", "admin"]],
        Field(min_length=1, max_length=20),
    ]
    #: Seconds until it opens nothing any more; absent: it lasts until it is revoked.
    expires_s: Annotated[int, Field(ge=1, le=LONGEST_S)] | None = None
    quotas: QuotasBody = QuotasBody()
    #: Who is told of its sessions, unless their documents name somebody themselves.
    webhook: Webhook | None = None


class TokenRoutes:
    """One method for each thing that can be done with tokens."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._tokens = engine.tokens
        self._settings = settings

    def create(self) -> Response:
        bodies.query(bodies.NoQuery)
        key = bodies.idempotency_key()
        asked = bodies.body(NewTokenBody)
        if asked.webhook is not None:
            admit_webhook(asked.webhook, self._settings)
        made = self._tokens.create(
            asked.name,
            frozenset(Scope(scope) for scope in asked.scopes),
            expires_s=asked.expires_s,
            quotas=Quotas(**asked.quotas.model_dump()),
            webhook=asked.webhook,
            key=key,
        )
        return answer(made, 201)

    def listed(self) -> Response:
        bodies.query(bodies.NoQuery)
        return answer(Page[TokenView](items=self._tokens.views()))

    def revoke(self, token: str) -> Response:
        bodies.query(bodies.NoQuery)
        self._tokens.revoke(token)
        return Response(status=204)


def blueprint(engine: Engine, settings: Settings) -> Blueprint:
    tokens = TokenRoutes(engine, settings)
    routes = Blueprint("tokens", __name__, url_prefix="/v1/tokens")
    routes.add_url_rule("", "create", tokens.create, methods=["POST"])
    routes.add_url_rule("", "listed", tokens.listed)
    routes.add_url_rule("/<token>", "revoke", tokens.revoke, methods=["DELETE"])
    return routes
