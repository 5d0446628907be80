"""Creates the Flask application around an engine."""

from __future__ import annotations

import re

from flask import request
from werkzeug.routing import BaseConverter

from api import (
    auth,
    events,
    fleet,
    flows,
    guards,
    inbox,
    plans,
    problems,
    request_log,
    serving,
    sessions,
    shared,
    stacks,
    steps,
    store,
)
from api import openapi_page as description
from api.dashboard import access
from api.dashboard import routes as dashboard
from api.requests import MAX_BODY_BYTES
from api.serving import Api
from app.engine import Engine
from app.settings import Settings
from leadhand.errors import SessionUnknown
from leadhand.flows.file_reading import RESERVED

#: Default number of event streams that one process serves in parallel.
STREAMS = 48
#: The modules whose functions serve the operations of the contract: importing them registers these.
SERVING = (
    shared, sessions, inbox, description, events, fleet, flows, guards, fleet, inbox, fleet,
    plans, sessions, shared, stacks, steps, store, fleet, steps, plans,
)  # fmt: skip

_SESSION_ID = re.compile(r"[0-9a-f]{8}")


class Session(BaseConverter):
    """URL converter for session ids; `batch` and `bulk` are routes of their own."""

    regex = "(?!batch$|bulk$)[^/]+"


class Flow(BaseConverter):
    """URL converter for flow names; `validate` is a route of its own."""

    regex = f"(?!{RESERVED}$)[^/]+"


def create_app(settings: Settings, engine: Engine, *, streams: int = STREAMS) -> Api:
    """Creates the API's Flask application for an engine: routes, token checks, error handlers."""
    flask = Api(settings, engine, dashboard.make_browsers(settings, engine), streams=streams)
    # One byte more than allowed, by which `api/requests.py` detects a body that is too long.
    flask.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES + 1
    flask.url_map.strict_slashes = True
    # A path with double slashes is unknown, without a redirect.
    flask.url_map.merge_slashes = False
    flask.url_map.converters["session"] = Session
    flask.url_map.converters["flow"] = Flow
    request_log.install(flask)
    access.install(flask, flask.hosts)
    store.install(flask, engine)
    auth.install(flask, settings, engine)
    problems.install(flask, engine)
    flask.before_request(_check_session_id)
    serving.add_routes(flask, engine)
    flask.register_blueprint(
        dashboard.blueprint(engine, flask.browsers, flask.hosts, flask.streams)
    )
    return flask


def _check_session_id() -> None:
    """Reject malformed session ids before the store is asked."""
    session = (request.view_args or {}).get("session")
    if session is not None and not _SESSION_ID.fullmatch(session):
        raise SessionUnknown(session)
