"""Serves the operations on single steps, and those that make sessions from others."""

from __future__ import annotations

from functools import partial

from api.auth import allow, current_author, current_owner, may_bring_commands, own_caller
from api.serving import Call, serves
from app.domain.environment.session import environment_of
from app.engine import Engine
from app.operations.step_verbs.documents import Changes
from app.operations.step_verbs.fork import Wish
from leadhand.contract import sessions, submissions
from leadhand.models.views.session import SessionView


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
