"""Serves the operations on the local steps of a session: its submitter claims and settles them."""

from __future__ import annotations

import time

from flask import request

from api.fanout import StreamCut
from api.serving import Call, current_api, serves
from api.wire.connection import ClientSocket
from app.domain.states import SessionStatus
from app.engine import Engine
from leadhand.contract import work
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.work import BeatView, SettledView, WorkView

#: The longest pause between two looks, in case an event is missed. (No event says that a retry is
#: due: `pause_s` allows for that.)
LOOK_S = 2.0


@serves(work.CLAIM)
def claim(engine: Engine, call: Call, asked: ClaimWork) -> WorkView:
    """Claims the next ready local step; waits up to `wait_s` for one."""
    engine.local_work.open(call.session, asked)
    view = engine.local_work.claim(call.session, asked)
    free = current_api().waiting_claims
    if _is_final(view) or asked.wait_s == 0 or not free.acquire(blocking=False):
        return view
    try:
        return _wait(engine, call.session, asked, view)
    finally:
        free.release()


def _wait(engine: Engine, session: str, asked: ClaimWork, view: WorkView) -> WorkView:
    """Claim again whenever the session changes, until there is a step or the time is over."""
    end = time.monotonic() + asked.wait_s
    after = f"{engine.store.now_ms() - 1000}-0"  # what came during the first look too
    try:
        with current_api().fanout.watch(session, after=after) as live:
            while (left := end - time.monotonic()) > 0 and not _is_final(view):
                live.take(pause_s(view, left))
                if _has_left():
                    break  # a step must not be granted to a worker that cannot hear of it
                view = engine.local_work.claim(session, asked)
    except StreamCut:
        pass  # this process ends, or has too many events to read: the worker asks again
    return view


@serves(work.BEAT)
def beat(engine: Engine, call: Call, asked: BeatWork) -> BeatView:
    """Extends the lease of an attempt (a heartbeat)."""
    return engine.local_work.beat(call.session, asked)


@serves(work.SETTLE)
def settle(engine: Engine, call: Call, asked: SettleWork) -> SettledView:
    """Records the outcome of an attempt."""
    return engine.local_work.settle(call.session, asked)


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
