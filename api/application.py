"""Creates the Flask application around an engine."""

from __future__ import annotations

import re

from flask import Flask, request
from werkzeug.routing import BaseConverter

from api import (
    auth,
    events,
    flows,
    guards,
    health,
    inbox,
    limits,
    plans,
    problems,
    request_log,
    sessions,
    shared,
    store,
    tokens,
    worktrees,
)
from api.artifacts import routes as artifact_routes
from api.dashboard import changes, hosts, links
from api.dashboard import routes as dashboard
from api.drawings import routes as drawing_routes
from api.fanout import Fanout
from api.fleet import routes as fleet
from api.fleet import statistics
from api.openapi import routes as openapi_routes
from api.requests import MAX_BODY_BYTES
from api.stacks import routes as stack_routes
from api.stream_limit import StreamLimit
from api.work import routes as work_routes
from app.engine import Engine
from app.errors import SessionUnknown
from app.settings import Settings
from leadhand.flows.file_reading import RESERVED

#: Default number of event streams that one process serves in parallel.
STREAMS = 48

_SESSION_ID = re.compile(r"[0-9a-f]{8}")


class Session(BaseConverter):
    """URL converter for session ids; `batch` and `bulk` are routes of their own."""

    regex = "(?!batch$|bulk$)[^/]+"


class Flow(BaseConverter):
    """URL converter for flow names; `validate` is a route of its own."""

    regex = f"(?!{RESERVED}$)[^/]+"


class Api(Flask):
    """The application with its engine, its event fan-out and the limit of its streams."""

    def __init__(self, engine: Engine, *, streams: int = STREAMS) -> None:
        super().__init__("api", static_folder=None)
        self.engine = engine
        self.fanout = Fanout(engine.queries.events_many)
        self.streams = StreamLimit(streams)

    def end_streams(self) -> None:
        """Closes all event streams, because the process ends."""
        self.streams.closing.set()
        self.fanout.close()


def create_app(settings: Settings, engine: Engine, *, streams: int = STREAMS) -> Api:
    """Creates the API's Flask application for an engine: routes, token checks, error handlers."""
    flask = Api(engine, streams=streams)
    # One byte more than allowed, by which `api/requests.py` detects a body that is too long.
    flask.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES + 1
    flask.url_map.strict_slashes = True
    # A path with double slashes is unknown, without a redirect.
    flask.url_map.merge_slashes = False
    flask.url_map.converters["session"] = Session
    flask.url_map.converters["flow"] = Flow
    request_log.install(flask)
    names = hosts.Hosts(settings)
    hosts.install(flask, names)
    store.install(flask, engine)
    auth.install(flask, settings, engine)
    problems.install(flask, engine)
    flask.before_request(_check_session_id)
    flask.register_blueprint(sessions.blueprint(engine))
    flask.register_blueprint(sessions.questions_blueprint(engine))
    flask.register_blueprint(inbox.blueprint(engine))
    flask.register_blueprint(plans.blueprint(engine))
    flask.register_blueprint(shared.locks_blueprint(engine))
    flask.register_blueprint(shared.values_blueprint(engine))
    flask.register_blueprint(stack_routes.blueprint(engine))
    flask.register_blueprint(artifact_routes.blueprint(engine))
    flask.register_blueprint(drawing_routes.blueprint(engine))
    flask.register_blueprint(guards.blueprint(engine))
    flask.register_blueprint(worktrees.blueprint(engine))
    flask.register_blueprint(events.blueprint(engine, flask.fanout, flask.streams))
    flask.register_blueprint(statistics.blueprint(engine))
    flask.register_blueprint(work_routes.blueprint(engine, flask.fanout, streams=streams))
    for routes in fleet.blueprints(engine):
        flask.register_blueprint(routes)
    flask.register_blueprint(flows.blueprint(engine))
    flask.register_blueprint(limits.blueprint(engine))
    flask.register_blueprint(store.blueprint(engine))
    flask.register_blueprint(tokens.blueprint(engine, settings))
    browsers = dashboard.make_browsers(settings, engine)
    flask.register_blueprint(links.blueprint(browsers, names))
    flask.register_blueprint(changes.blueprint(engine, flask.streams))
    flask.register_blueprint(dashboard.blueprint(engine, browsers, names, flask.streams))
    flask.register_blueprint(health.blueprint(engine, settings))
    flask.register_blueprint(openapi_routes.blueprint(flask))
    return flask


def _check_session_id() -> None:
    """Reject malformed session ids before the store is asked."""
    session = (request.view_args or {}).get("session")
    if session is not None and not _SESSION_ID.fullmatch(session):
        raise SessionUnknown(session)
