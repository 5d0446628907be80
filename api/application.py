"""Puts the API together: a Flask application around one engine."""

from __future__ import annotations

import re

from flask import Flask, request
from werkzeug.routing import BaseConverter

from api import (
    agents,
    auth,
    description,
    events,
    fleet,
    flows,
    health,
    limits,
    problems,
    request_log,
    sessions,
    tokens,
    tools,
    workers,
)
from api.bodies import MAX_BODY_BYTES
from api.fanout import Fanout
from api.port import Engine
from app.errors import SessionUnknown
from app.settings import Settings
from leadhand.flow_files import RESERVED

#: Event streams that one process serves at once, unless it is told how many threads it has.
STREAMS = 48

_SESSION_ID = re.compile(r"[0-9a-f]{8}")


class Session(BaseConverter):
    """What stands where a session's id would; `bulk` is for all of them."""

    regex = "(?!bulk$)[^/]+"


class Flow(BaseConverter):
    """What stands where a flow's name would; `validate` is for those that are being written."""

    regex = f"(?!{RESERVED}$)[^/]+"


class Api(Flask):
    """The application, and what its process has to end with it."""

    def __init__(self, engine: Engine) -> None:
        super().__init__("api", static_folder=None)
        self.engine = engine
        self.fanout = Fanout(engine)


def create_app(settings: Settings, engine: Engine, *, streams: int = STREAMS) -> Api:
    """The API for this engine."""
    flask = Api(engine)
    flask.config["MAX_CONTENT_LENGTH"] = MAX_BODY_BYTES
    flask.url_map.strict_slashes = True
    # A path with too many slashes is unknown; there is nothing to be sent on to.
    flask.url_map.merge_slashes = False
    flask.url_map.converters["session"] = Session
    flask.url_map.converters["flow"] = Flow
    request_log.install(flask)
    auth.install(flask, settings, engine)
    problems.install(flask)
    flask.before_request(_session_id_is_possible)
    flask.register_blueprint(sessions.blueprint(engine))
    flask.register_blueprint(events.blueprint(engine, flask.fanout, streams=streams))
    flask.register_blueprint(workers.blueprint(engine))
    flask.register_blueprint(agents.blueprint(engine))
    flask.register_blueprint(tools.blueprint(engine))
    flask.register_blueprint(fleet.blueprint(engine))
    flask.register_blueprint(flows.blueprint(engine))
    flask.register_blueprint(limits.blueprint(engine))
    flask.register_blueprint(tokens.blueprint(engine, settings))
    flask.register_blueprint(health.blueprint(engine))
    flask.register_blueprint(description.blueprint(flask))
    return flask


def _session_id_is_possible() -> None:
    """Nothing else than an id of ours gets as far as the store."""
    session = (request.view_args or {}).get("session")
    if session is not None and not _SESSION_ID.fullmatch(session):
        raise SessionUnknown(session)
