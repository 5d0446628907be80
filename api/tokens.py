"""REST routes for API tokens."""

from __future__ import annotations

from typing import Annotated, Literal

from flask import Blueprint, Response
from pydantic import Field

from api import requests
from api.responses import answer
from app.engine import Engine
from app.fleet.admission import admit_webhook
from app.security.api_tokens import Scope
from app.settings import Settings
from leadhand.models.documents import Webhook
from leadhand.models.views import Page, Quotas, TokenView

#: Maximum lifetime of a token: ten years.
LONGEST_S = 10 * 365 * 24 * 3600

Count = Annotated[int, Field(ge=0, le=10**15)]


class QuotasBody(requests.Body):
    """Quotas of the token's sessions; absent ones are unlimited."""

    max_sessions: Count | None = None
    steps_per_day: Count | None = None
    bytes_per_day: Count | None = None


class NewTokenBody(requests.Body):
    """The token to create."""

    name: Annotated[str, Field(min_length=1, max_length=120)]
    scopes: Annotated[
        list[Literal["read", "submit", "control", "exec:free", "admin"]],
        Field(min_length=1, max_length=20),
    ]
    #: Lifetime in seconds; without it the token is valid until it is revoked.
    expires_s: Annotated[int, Field(ge=1, le=LONGEST_S)] | None = None
    quotas: QuotasBody = QuotasBody()
    #: The default webhook of its sessions, unless their documents name one.
    webhook: Webhook | None = None


class TokenRoutes:
    """One method per route."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._tokens = engine.tokens
        self._settings = settings

    def create(self) -> Response:
        """POST /v1/tokens: create an API token with scopes, quotas and an expiry, and return it."""
        requests.query(requests.NoQuery)
        key = requests.idempotency_key()
        asked = requests.body(NewTokenBody)
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

    def list_all(self) -> Response:
        """GET /v1/tokens: list all API tokens."""
        requests.query(requests.NoQuery)
        return answer(Page[TokenView](items=self._tokens.views()))

    def revoke(self, token: str) -> Response:
        """DELETE /v1/tokens/ID: revoke an API token."""
        requests.query(requests.NoQuery)
        self._tokens.revoke(token)
        return Response(status=204)


def blueprint(engine: Engine, settings: Settings) -> Blueprint:
    """Returns the Flask blueprint with the routes of API tokens."""
    tokens = TokenRoutes(engine, settings)
    routes = Blueprint("tokens", __name__, url_prefix="/v1/tokens")
    routes.add_url_rule("", "create", tokens.create, methods=["POST"])
    routes.add_url_rule("", "listed", tokens.list_all)
    routes.add_url_rule("/<token>", "revoke", tokens.revoke, methods=["DELETE"])
    return routes
