"""REST routes for the store's identity, and the check of each request against it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from flask import Blueprint, Flask, Response, g, request
from pydantic import Field

from api import requests
from api.responses import answer
from api.scopes import PUBLIC
from app.engine import Engine
from app.errors import SessionUnknown
from leadhand.models.views import WorkerView

#: Endpoints that respond even if the store is not the expected one.
ALWAYS = PUBLIC | {"store.show", "store.accept"}
#: Endpoints that need the live workers, which are read with the store's identity.
WITH_WORKERS = frozenset({"sessions.submit"})
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


class AcceptBody(requests.Body):
    """What to accept; without options, an older state of the same store."""

    #: An empty Redis, or another store than before.
    new: bool = False
    #: A further id that the store succeeds, for a worker that remembers another id than the API.
    replaces: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")] | None = None


def install(flask: Flask, engine: Engine) -> None:
    """Registers a check that refuses requests while Redis holds other data than expected.

    A request that may write compares the store at once: an emptied one must keep nothing. Others
    rely on the last comparison, at most a sweep ago.
    """

    def require() -> None:
        if request.endpoint in ALWAYS:
            return
        if request.endpoint in WITH_WORKERS:
            g.workers = engine.guard.require_now_with_workers()
        elif request.method in _READS:
            engine.guard.require()
        else:
            engine.guard.require_now()

    flask.before_request(require)


def current_workers() -> Sequence[WorkerView]:
    """Returns the live workers that the check of this request's store has read.

    Only endpoints of WITH_WORKERS have them.
    """
    workers: Sequence[WorkerView] = g.workers
    return workers


def check_unknown(engine: Engine, error: Exception) -> None:
    """Raises StoreUnknown if a session is unknown only because Redis lost its data."""
    if isinstance(error, SessionUnknown):
        engine.guard.check()


def blueprint(engine: Engine) -> Blueprint:
    """Returns the Flask blueprint of routes that show and accept the identity of Redis's data."""
    routes = Blueprint("store", __name__, url_prefix="/v1/store")

    def show() -> Response:
        requests.query(requests.NoQuery)
        view = engine.guard.check_and_view()
        return answer(view.model_copy(update={"warnings": list(engine.troubles.warnings)}))

    def accept() -> Response:
        requests.query(requests.NoQuery)
        asked = requests.body(AcceptBody)
        return answer(engine.guard.accept(new=asked.new, replaces=asked.replaces))

    routes.add_url_rule("", "show", show)
    routes.add_url_rule("/accept", "accept", accept, methods=["POST"])
    return routes
