"""Serves the operations on the store's identity, and checks each request against it."""

from __future__ import annotations

from collections.abc import Sequence

from flask import Flask, g, request

from api.serving import Call, serves
from app.engine import Engine
from leadhand.contract import fleet, submissions
from leadhand.contract.operation import NoQuery
from leadhand.contract.operations import OPERATIONS
from leadhand.errors import SessionUnknown
from leadhand.models.views.fleet import StoreView, WorkerView

#: Operations that respond even if the store is not the expected one.
ALWAYS = {
    *(name for name, one in OPERATIONS.items() if one.scope is None),
    fleet.STORE.name,
    fleet.ACCEPT_STORE.name,
}
#: Operations that need the live workers, which are read with the store's identity.
WITH_WORKERS = {submissions.SUBMIT.name}
_READS = frozenset({"GET", "HEAD", "OPTIONS"})


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

    Only operations of WITH_WORKERS have them.
    """
    workers: Sequence[WorkerView] = g.workers
    return workers


def check_unknown(engine: Engine, error: Exception) -> None:
    """Raises StoreUnknown if a session is unknown only because Redis lost its data."""
    if isinstance(error, SessionUnknown):
        engine.guard.check()


@serves(fleet.STORE)
def show(engine: Engine, _call: Call, _: NoQuery) -> StoreView:
    """Shows the identity of Redis's data."""
    view = engine.guard.check_and_view()
    return view.model_copy(update={"warnings": list(engine.troubles.warnings)})


@serves(fleet.ACCEPT_STORE)
def accept(engine: Engine, _: Call, asked: fleet.AcceptBody) -> StoreView:
    """Accepts the data in Redis as those of the fleet."""
    return engine.guard.accept(new=asked.new, replaces=asked.replaces)
