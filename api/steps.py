"""Serves the operations on steps: retry, skip, fork, rerun, and the claims of local workers."""

from __future__ import annotations

import time
from functools import partial

from flask import request

from api.auth import allow, current_author, current_owner, may_bring_commands, own_caller
from api.fanout import StreamCut
from api.serving import Call, current_api, serves
from api.wire.connection import ClientSocket
from app.core.environment import environment_of
from app.core.states import SessionStatus
from app.engine import Engine
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from leadhand.contract import sessions, submissions, work
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.session import BeatView, SessionView, SettledView, WorkView

#: The longest pause between two looks, in case an event is missed. (No event says that a retry is
#: due: `pause_s` allows for that.)
LOOK_S = 2.0


@serves(sessions.RETRY)
def retry(engine: Engine, call: Call, asked: sessions.Retry) -> SessionView:
    """Runs a step again, and all steps that depend on it."""
    return engine.step_verbs.retry(
        call.session,
        asked.step,
        by=own_caller(call.session),
        seen=call.seen,
        free=may_bring_commands(engine),
    )


@serves(sessions.SKIP)
def skip(engine: Engine, call: Call, asked: sessions.Skip) -> SessionView:
    """Skips a step; dependent steps run without its result."""
    return engine.skips.skip(
        call.session,
        asked.step,
        reason=asked.reason,
        author=current_author(),
        by=own_caller(call.session),
        seen=call.seen,
        free=may_bring_commands(engine),
    )


@serves(submissions.FORK)
def fork(engine: Engine, call: Call, asked: submissions.Fork) -> SessionView:
    """Creates a session that continues from a point of this one."""
    free = may_bring_commands(engine)
    allow(asked, free=free)
    changes = Changes(agent=asked.agent, inputs=asked.inputs, tools=asked.tools, label=asked.label)
    made = engine.forks.fork(
        call.session,
        Wish(asked.after, changes, asked.folder == "as-is", environment_of(asked)),
        key=call.key,
        owner=current_owner(),
        free=free,
        check=partial(allow, free=free),
    )
    return engine.queries.session(made.session)


@serves(submissions.RERUN)
def rerun(engine: Engine, call: Call, asked: submissions.Rerun) -> SessionView:
    """Creates a session from the changed document of this one."""
    free = may_bring_commands(engine)
    allow(asked, free=free)
    changes = Changes(
        task=asked.task, checkers=asked.checkers, agent=asked.agent, inputs=asked.inputs,
        label=asked.label,
    )  # fmt: skip
    made = engine.reruns.rerun(
        call.session,
        changes,
        environment=environment_of(asked),
        key=call.key,
        owner=current_owner(),
        free=free,
        check=partial(allow, free=free),
    )
    return engine.queries.session(made.session)


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
