"""Lets in who holds a token: the operator's for everything, a body's for its own session."""

from __future__ import annotations

import hmac

from flask import Flask, g, request

from api.refusals import forbidden, unauthenticated
from app.capabilities import PREFIX, Caller, verify
from app.errors import CapabilityRefused
from app.settings import Settings

#: Answered to anybody: they tell nothing of what runs.
PUBLIC_PATHS = frozenset({"/healthz", "/readyz"})
_READS = frozenset({"GET", "HEAD"})


def install(flask: Flask, settings: Settings) -> None:
    """Let no request pass without a token that grants it."""

    def admit() -> None:
        if request.path in PUBLIC_PATHS:
            return
        caller = _caller(settings)
        if caller is not None:
            _keep_to_own_session(caller)
        g.caller = caller

    flask.before_request(admit)


def current_caller() -> Caller | None:
    """The body that speaks; None for the operator."""
    caller: Caller | None = g.caller
    return caller


def _caller(settings: Settings) -> Caller | None:
    """Who speaks, by the token. Raises Refused."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise unauthenticated("no bearer token was sent")
    if token.startswith(PREFIX):
        try:
            return verify(token, secret=settings.secret)
        except CapabilityRefused as error:
            raise unauthenticated(error.why) from None
    # A token that is not set equals none that can be sent, for those are not empty.
    if not hmac.compare_digest(token.encode(), settings.api_token.encode()):
        raise unauthenticated("the token is not known here")
    return None


def _keep_to_own_session(caller: Caller) -> None:
    """A body reads its own session and may end it by intent; the rest is the operator's."""
    needed = _needed_scope()
    if needed is None or (request.view_args or {}).get("session") != caller.session:
        hint = "a body may read its own session, and call exit on it"
        raise forbidden(f"the token is for session {caller.session!r} only", hint=hint)
    if needed not in caller.scopes:
        raise forbidden(f"the token lacks the scope {needed!r}")


def _needed_scope() -> str | None:
    if request.method in _READS:
        return "read"
    return "exit" if request.endpoint == "sessions.exit" else None
