"""REST routes for the local steps of a session: its submitter claims and settles them."""

from __future__ import annotations

import threading
import time

from flask import Blueprint, Response, request

from api import requests
from api.fanout import Fanout, StreamCut
from api.requests import NoQuery
from api.responses import answer
from api.wire.connection import ClientSocket
from app.domain.states import SessionStatus
from app.engine import Engine
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.work import WorkView

#: One in so many of the event streams that a process serves may be claims that wait: each waiting
#: claim has a thread.
SHARE = 4
#: The longest pause between two looks, in case an event is missed. (No event says that a retry is
#: due: `pause_s` allows for that.)
LOOK_S = 2.0


class LocalWork:
    """One method per route."""

    def __init__(self, engine: Engine, fanout: Fanout, *, waiting: int) -> None:
        self._engine = engine
        self._fanout = fanout
        self._free = threading.BoundedSemaphore(waiting)

    def claim(self, session: str) -> Response:
        """POST .../work/claim: claim the next ready local step; waits up to `wait_s` for one."""
        requests.query(NoQuery)
        asked = requests.body(ClaimWork)
        self._engine.local_work.open(session, asked)
        view = self._engine.local_work.claim(session, asked)
        if _is_final(view) or asked.wait_s == 0 or not self._free.acquire(blocking=False):
            return answer(view)
        try:
            return answer(self._wait(session, asked, view))
        finally:
            self._free.release()

    def _wait(self, session: str, asked: ClaimWork, view: WorkView) -> WorkView:
        """Claim again whenever the session changes, until there is a step or the time is over."""
        end = time.monotonic() + asked.wait_s
        after = f"{self._engine.store.now_ms() - 1000}-0"  # what came during the first look too
        try:
            with self._fanout.watch(session, after=after) as live:
                while (left := end - time.monotonic()) > 0 and not _is_final(view):
                    live.take(pause_s(view, left))
                    if _has_left():
                        break  # a step must not be granted to a worker that cannot hear of it
                    view = self._engine.local_work.claim(session, asked)
        except StreamCut:
            pass  # this process ends, or has too many events to read: the worker asks again
        return view

    def beat(self, session: str) -> Response:
        """POST .../work/beat: extend the lease of an attempt (a heartbeat)."""
        requests.query(NoQuery)
        return answer(self._engine.local_work.beat(session, requests.body(BeatWork)))

    def settle(self, session: str) -> Response:
        """POST .../work/settle: record the outcome of an attempt."""
        requests.query(NoQuery)
        return answer(self._engine.local_work.settle(session, requests.body(SettleWork)))


def _is_final(view: WorkView) -> bool:
    """Whether waiting is of no use: there is a step, or no more work."""
    return view.grant is not None or view.status != SessionStatus.ACTIVE


def pause_s(view: WorkView, left_s: float) -> float:
    """Returns the seconds until the next look at the latest, of a claim that waits `left_s` more.

    >>> pause_s(WorkView(status="active", next_s=0.05), 10.0)
    0.05
    """
    return min(left_s, LOOK_S, left_s if view.next_s is None else view.next_s)


def _has_left() -> bool:
    """Whether the client has closed its connection; False if that is not known."""
    connection = request.environ.get("gunicorn.socket")
    return isinstance(connection, ClientSocket) and connection.has_left()


def blueprint(engine: Engine, fanout: Fanout, *, streams: int) -> Blueprint:
    """Returns the Flask blueprint with the routes of local steps: claim, beat and settle."""
    work = LocalWork(engine, fanout, waiting=max(1, streams // SHARE))
    routes = Blueprint("work", __name__, url_prefix="/v1/sessions/<session>/work")
    routes.add_url_rule("/claim", "claim", work.claim, methods=["POST"])
    routes.add_url_rule("/beat", "beat", work.beat, methods=["POST"])
    routes.add_url_rule("/settle", "settle", work.settle, methods=["POST"])
    return routes
