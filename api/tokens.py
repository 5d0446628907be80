"""Serves the operations on API tokens, and the sign-in link of the dashboard."""

from __future__ import annotations

from flask import g

from api.serving import Call, current_api, serves
from app.engine import Engine
from app.fleet.admission import admit_webhook
from app.security.api_tokens import Scope
from app.security.browser_sessions import LINK_S
from leadhand.contract import tokens
from leadhand.contract.bodies import NoBody, NoQuery
from leadhand.models.views.attention import SignInLink
from leadhand.models.views.tokens import NewToken, TokenView
from leadhand.models.views.view import Page


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
def list_all(engine: Engine, _call: Call, _: NoQuery) -> Page[TokenView]:
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
