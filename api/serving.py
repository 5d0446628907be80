"""Serves the operations of the contract: each by one function, at a route that is derived."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from flask import Flask, Response, current_app, request
from pydantic import BaseModel
from werkzeug.routing import Rule

from api import requests
from api.dashboard.access import Hosts
from api.fanout import Fanout, StreamLimit
from api.requests import answer, plan_answer, session_answer
from app.core.states import Seen
from app.engine import Engine
from app.security.browser_sessions import BrowserSessions
from app.settings import Settings
from leadhand.contract.operation import Operation
from leadhand.contract.operations import OPERATIONS
from leadhand.models.views.plan import PlanView
from leadhand.models.views.session import SessionView

A = TypeVar("A")

#: One in so many of the event streams that a process serves may be claims that wait: each waiting
#: claim has a thread.
SHARE = 4


class LateRule(Rule):
    """A route that compiles the functions which build its URLs when the first one is built.

    Compiling them takes most of the time in which the application is made, and it builds few URLs.
    """

    def _compile_builder(self, append_unknown: bool = True) -> Callable[..., tuple[str, str]]:
        compiler = super()._compile_builder
        compiled = cache(lambda: compiler(append_unknown))
        return lambda rule, /, **values: compiled()(rule, **values)


class Api(Flask):
    """The application with its engine, its event fan-out and the limit of its streams."""

    url_rule_class = LateRule

    def __init__(
        self, settings: Settings, engine: Engine, browsers: BrowserSessions, *, streams: int
    ) -> None:
        super().__init__("api", static_folder=None)
        self.settings = settings
        self.engine = engine
        self.browsers = browsers
        self.hosts = Hosts(settings)
        self.fanout = Fanout(engine.queries.events_many)
        self.streams = StreamLimit(streams)
        self.waiting_claims = threading.BoundedSemaphore(max(1, streams // SHARE))

    def end_streams(self) -> None:
        """Closes all event streams, because the process ends."""
        self.streams.closing.set()
        self.fanout.close()


def current_api() -> Api:
    """Returns the application that serves the current request."""
    return cast("Api", current_app)


class Call(NamedTuple):
    """What a request gives besides its body: parameters of the path, the query, and a key."""

    path: Mapping[str, str]
    #: The query, parsed as the model of the operation.
    query: Any
    #: The idempotency key, if the operation takes one and the request has one.
    key: str | None
    #: The versions that the caller has read, as the header If-Match has them.
    if_match: str | None = None

    @property
    def session(self) -> str:
        """Returns the id of the session in the path."""
        return self.path["session"]

    @property
    def seen(self) -> Seen | None:
        """Returns the version of the session that the caller has read; None for any."""
        return requests.seen_session(self.if_match)


#: Carries out an operation. Its result is a model, None for an answer without a body, or a
#: response that it made itself. Raises what `api.problems` converts to a problem.
Handler: TypeAlias = Callable[[Engine, Call, A], BaseModel | Response | None]

_HANDLERS: dict[str, Handler[Any]] = {}


def serves(operation: Operation[A]) -> Callable[[Handler[A]], Handler[A]]:
    """Registers the function that carries out an operation.

    It is given the parsed body; the query if the operation reads none; and as JSON a body whose
    type is no model.
    """

    def register(handler: Handler[A]) -> Handler[A]:
        _HANDLERS[operation.name] = handler
        return handler

    return register


def add_routes(flask: Flask, engine: Engine) -> None:
    """Adds a route for each operation of the contract. Raises LookupError if one is not served."""
    for operation in OPERATIONS.values():
        handler = _HANDLERS[operation.name]
        flask.add_url_rule(
            operation.path_with(_converter),
            operation.name,
            _view(operation, handler, engine),
            methods=[operation.method],
        )


def carry_out(
    engine: Engine, operation: Operation[A], call: Call, asked: A
) -> BaseModel | Response | None:
    """Carries out an operation for the caller of the request, whose rights have been checked."""
    return _HANDLERS[operation.name](engine, call, asked)


def _converter(name: str, kind: str) -> str:
    """A parameter as Flask has it; the ids of sessions have a converter of their own."""
    return f"<{kind or ('session' if name == 'session' else 'string')}:{name}>"


def _view(
    operation: Operation[Any], handler: Handler[Any], engine: Engine
) -> Callable[..., Response]:
    body, takes_key = operation.body, "Idempotency-Key" in operation.headers

    def view(**path: str) -> Response:
        query = None if operation.query is None else requests.query(operation.query)
        key = requests.idempotency_key() if takes_key else None
        call = Call(path, query, key, request.headers.get("If-Match"))
        made = handler(engine, call, query if body is None else _parsed(body))
        return made if isinstance(made, Response) else _respond(operation, made)

    return view


def _parsed(body: Any) -> Any:
    is_model = isinstance(body, type) and issubclass(body, BaseModel)
    return requests.body(body) if is_model else requests.value()


def _respond(operation: Operation[Any], made: BaseModel | None) -> Response:
    """The response to a call, with the status and headers that the operation declares."""
    if made is None:
        return Response(status=204)
    declared = next(one for one in operation.responses if one.body)
    headers = {}
    if "Location" in declared.headers and isinstance(made, SessionView):
        headers["Location"] = f"/v1/sessions/{made.id}"
    if isinstance(made, SessionView):
        return session_answer(made, declared.status, headers=headers)
    if isinstance(made, PlanView):
        return plan_answer(made, changed=operation.method != "GET", status=declared.status)
    return answer(made, declared.status)
