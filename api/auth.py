"""Authenticates and authorizes requests: operator token, API tokens and step tokens."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, NamedTuple

from flask import Flask, g, request
from pydantic import BaseModel

from app.engine import Engine
from app.errors import CapabilityRefused
from app.security.api_tokens import EVERYTHING, Owner, Scope, Token
from app.security.command_permission import free_commands
from app.security.signatures import PREFIX, Caller, verify_any
from app.sessions.callers import is_current
from app.sessions.tree import is_within
from app.settings import Settings
from leadhand.contract.operation import BodyRight, Operation
from leadhand.contract.operations import OPERATIONS
from leadhand.errors import Refused, StoreAway, TokenInvalid, TokenRefused

#: The routes of the dashboard, which authenticates browsers by itself.
BROWSER = "dashboard"


class Visitor(NamedTuple):
    """The authenticated caller: a body, the holder of a token, or else the operator."""

    body: Caller | None = None
    token: Token | None = None

    @property
    def scopes(self) -> frozenset[Scope]:
        """Returns the caller's scopes (permissions): the operator has all, a step has none."""
        if self.body is not None:
            return frozenset()
        return EVERYTHING if self.token is None else self.token.scopes

    @property
    def name(self) -> str:
        """Returns the caller's name for logs and records, such as `operator`, without secrets."""
        if self.body is not None and self.body.is_of_session:
            return f"session {self.body.session}"
        if self.body is not None and self.body.is_of_work:
            return f"local worker of {self.body.session}"
        if self.body is not None:
            return f"step {self.body.session}:{self.body.address}"
        return "operator" if self.token is None else f"token {self.token.id}"

    @property
    def signature(self) -> str:
        """Returns the caller's name as the author of an answer; for a token, its name and id."""
        return self.name if self.token is None else f"token {self.token.name} ({self.token.id})"


class Doorkeeper:
    """Checks each request's token."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine

    def admit(self) -> None:
        """Checks token and scope of the current request and stores its caller. Raises Refused.

        Requests of public routes and of the dashboard pass.
        """
        operation = OPERATIONS.get(request.endpoint or "")
        is_public = operation is not None and operation.scope is None
        if is_public or request.blueprint == BROWSER:
            return
        text = _bearer()
        visitor = self.recognise(text)
        g.by = visitor.name
        if operation is not None:
            self._grant(visitor, operation)
        elif request.endpoint is not None:
            raise TokenRefused("this route is no operation of the API")
        g.visitor = visitor
        g.token_recheck = lambda: self._still(text)

    def recognise(self, text: str) -> Visitor:
        """Returns the caller that a bearer token belongs to. Raises Refused for an unusable token.

        It may be invalid, revoked or expired. Raises StoreUnknown, too.
        """
        try:
            if text.startswith(PREFIX):
                return Visitor(body=self._running(verify_any(text, self._settings.secrets)))
            # An unset operator token is empty and matches no request, as sent tokens are not empty.
            if hmac.compare_digest(text.encode(), self._settings.api_token.encode()):
                return Visitor()
            return Visitor(token=self._engine.tokens.recognise(text))
        except CapabilityRefused as error:
            self._engine.guard.check()  # an emptied store knows no token and no attempt
            raise TokenInvalid(error.why) from None

    def _grant(self, visitor: Visitor, operation: Operation[Any]) -> None:
        """Check that the caller may call the operation. Raises Refused."""
        if visitor.body is not None:
            self._keep_to_own_tree(visitor.body, operation)
        elif operation.scope not in visitor.scopes:
            raise TokenRefused(f"the token lacks the scope {str(operation.scope)!r}")

    def _keep_to_own_tree(self, caller: Caller, operation: Operation[Any]) -> None:
        """Check that a body calls only for its own session and those below it. Raises Refused."""
        right = operation.body_right
        if right is None or not self._reaches(caller, right, operation.session_in_query):
            hint = (
                "a body may read its own session and those below it, start child sessions and"
                " control them, and call exit on its own"
            )
            raise TokenRefused(f"the token is for session {caller.session!r} only", hint=hint)
        if right.scope not in caller.scopes:
            raise TokenRefused(f"the token lacks the scope {right.scope!r}")

    def _reaches(self, caller: Caller, right: BodyRight, in_query: str) -> bool:
        """Whether the session of the request is one that the body may call for."""
        if right.reach == "any":
            return True
        named = request.args.get(in_query)
        session = (request.view_args or {}).get("session", named)
        if session is None or session == caller.session:
            return session is not None and right.reach != "below"
        return right.reach != "own" and is_within(self._engine, session, caller.session)

    def _running(self, caller: Caller) -> Caller:
        """Check that the token's attempt still runs. Raises CapabilityRefused."""
        if not is_current(self._engine, caller):
            raise CapabilityRefused(
                "the session that the token was given to is stopped or has ended"
                if caller.is_of_session
                else "the attempt that the token was given to has ended"
            )
        return caller

    def _still(self, text: str) -> bool:
        try:
            self.recognise(text)
        except StoreAway:
            return True  # unknown; the stream cannot read events either
        except Refused:
            return False
        return True


def install(flask: Flask, settings: Settings, engine: Engine) -> None:
    """Registers a function that checks the token of every request first."""
    flask.before_request(Doorkeeper(settings, engine).admit)


def current_caller() -> Caller | None:
    """Returns the running step or session whose token sends this request; None for people."""
    return _visitor().body


def own_caller(session: str) -> Caller | None:
    """Returns the attempt that sends this request, if it is one of this session."""
    caller = current_caller()
    return caller if caller is not None and caller.session == session else None


def current_visitor() -> str:
    """Returns the name of this request's caller, for logs and records."""
    return _visitor().name


def current_author() -> str:
    """Returns the caller of this request as the author of an answer: its name and token's name."""
    return _visitor().signature


def current_owner() -> Owner | None:
    """Returns the owner of the sessions that this request creates; None without an API token."""
    token = _visitor().token
    return None if token is None else token.owner


def token_recheck() -> Callable[[], bool]:
    """Returns a function that checks if this request's token is still valid, for long streams."""
    found: Callable[[], bool] = g.token_recheck
    return found


def may_bring_commands(engine: Engine) -> bool:
    """Whether this request's caller may submit commands (scope exec:free), or its session may."""
    caller = _visitor().body
    if caller is not None:
        return engine.spawner.may_bring_commands(caller)
    return Scope.EXEC_FREE in _visitor().scopes


def allow(document: BaseModel, *, free: bool) -> None:
    """Raises Refused if a document contains commands, unless `free`: the caller may submit any."""
    if free:
        return
    for field in free_commands(document):
        hint = "name an agent of agents.toml instead, or ask for a token with exec:free"
        if _visitor().body is not None:
            hint = "name an agent of agents.toml instead; its session was submitted without it"
        raise TokenRefused(f"{field} needs the scope 'exec:free'", hint=hint, field=field)


def _visitor() -> Visitor:
    visitor: Visitor = g.visitor
    return visitor


def _bearer() -> str:
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise TokenInvalid()
    return token
