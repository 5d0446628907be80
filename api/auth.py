"""Lets in who holds a token: the operator's, one that was made here, or a running body's own."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import NamedTuple

from flask import Flask, g, request
from pydantic import BaseModel

from api.port import Engine
from api.refusals import Refused, forbidden, not_admitted, unauthenticated
from api.scopes import BODY_NEEDED, PUBLIC, scope_of
from app.capabilities import PREFIX, Caller, verify
from app.errors import CapabilityRefused, StoreAway
from app.free_commands import free_commands
from app.settings import Settings
from app.tokens import EVERYTHING, Owner, Scope, Token


class Visitor(NamedTuple):
    """Who speaks: a body, the holder of a token, or the operator, who is neither."""

    body: Caller | None = None
    token: Token | None = None

    @property
    def scopes(self) -> frozenset[Scope]:
        """What it may do; a body's own rights are of another kind."""
        if self.body is not None:
            return frozenset()
        return EVERYTHING if self.token is None else self.token.scopes

    @property
    def called(self) -> str:
        """What the log calls it; never what would open a door."""
        if self.body is not None:
            return f"step {self.body.session}:{self.body.address}"
        return "operator" if self.token is None else f"token {self.token.id}"


class Doorkeeper:
    """Tells by a request's token who speaks, and whether it may."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine

    def admit(self) -> None:
        """Let no request pass without a token that grants it. Raises Refused."""
        endpoint = request.endpoint
        if endpoint in PUBLIC:
            return
        text = _bearer()
        visitor = self.recognise(text)
        g.by = visitor.called
        if endpoint is not None:
            _grant(visitor, endpoint)
        g.visitor = visitor
        g.still_admitted = lambda: self._still(text)

    def recognise(self, text: str) -> Visitor:
        """Whose token it is. Raises Refused for one that opens nothing here, or no longer."""
        try:
            if text.startswith(PREFIX):
                return Visitor(body=self._running(verify(text, secret=self._settings.secret)))
            # A token that is not set equals none that can be sent, for those are not empty.
            if hmac.compare_digest(text.encode(), self._settings.api_token.encode()):
                return Visitor()
            return Visitor(token=self._engine.tokens.recognise(text))
        except CapabilityRefused as error:
            raise not_admitted(error.why) from None

    def _running(self, caller: Caller) -> Caller:
        """A body's token dies with its attempt. Raises CapabilityRefused."""
        if not self._engine.stands(caller):
            raise CapabilityRefused("the attempt that the token was given to has ended")
        return caller

    def _still(self, text: str) -> bool:
        try:
            self.recognise(text)
        except Refused:
            return False
        except StoreAway:
            return True  # nobody can tell; what the stream reads is away as well
        return True


def install(flask: Flask, settings: Settings, engine: Engine) -> None:
    """Ask for a token before anything else is done."""
    flask.before_request(Doorkeeper(settings, engine).admit)


def current_caller() -> Caller | None:
    """The body that speaks; None for people and programs."""
    return _visitor().body


def current_visitor() -> str:
    """What whoever speaks is called, in logs and where it is told who did something."""
    return _visitor().called


def current_owner() -> Owner | None:
    """Whose the sessions are that this request starts; None for the operator's own."""
    token = _visitor().token
    return None if token is None else token.owner


def still_admitted() -> Callable[[], bool]:
    """Whether this request's token still opens what it opened, to be asked as it goes on."""
    found: Callable[[], bool] = g.still_admitted
    return found


def allow(document: BaseModel) -> None:
    """Refuse commands and callables to who may only use named agents. Raises Refused."""
    if Scope.EXEC_FREE in _visitor().scopes:
        return
    for field in free_commands(document):
        hint = "name an agent of agents.toml instead, or ask for a token with exec:free"
        refusal = forbidden(f"{field} needs the scope 'exec:free'", hint=hint)
        refusal.problem = refusal.problem.model_copy(update={"field": field})
        raise refusal


def _visitor() -> Visitor:
    visitor: Visitor = g.visitor
    return visitor


def _bearer() -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise unauthenticated()
    return token


def _grant(visitor: Visitor, endpoint: str) -> None:
    if visitor.body is not None:
        _keep_to_own_session(visitor.body, endpoint)
    elif scope_of(endpoint) not in visitor.scopes:
        raise forbidden(f"the token lacks the scope {scope_of(endpoint).value!r}")


def _keep_to_own_session(caller: Caller, endpoint: str) -> None:
    """A body reads its own session and may end it by intent; the rest is not for it."""
    needed = BODY_NEEDED.get(endpoint)
    if needed is None or (request.view_args or {}).get("session") != caller.session:
        hint = "a body may read its own session, and call exit on it"
        raise forbidden(f"the token is for session {caller.session!r} only", hint=hint)
    if needed not in caller.scopes:
        raise forbidden(f"the token lacks the scope {needed!r}")
