"""Makes sessions from others, for REST and the dashboard."""

from __future__ import annotations

from functools import partial

from api.auth import allow, current_owner, may_bring_commands
from api.steps import bodies
from app.domain.environment.session import environment_of
from app.engine import Engine
from app.operations.step_verbs.documents import Changes
from app.operations.step_verbs.fork import Wish
from app.operations.submit import Submitted


def make_fork(engine: Engine, session: str, asked: bodies.Fork, *, key: str | None) -> Submitted:
    """Creates a session that continues from a step of another one, for the request's caller.

    `key` is its idempotency key.
    Raises what `Forks.fork` does, and Refused for commands that the caller may not bring.
    """
    free = may_bring_commands(engine)
    allow(asked, free=free)
    changes = Changes(agent=asked.agent, inputs=asked.inputs, tools=asked.tools, label=asked.label)
    return engine.forks.fork(
        session,
        Wish(asked.after, changes, asked.folder == "as-is", environment_of(asked)),
        key=key,
        owner=current_owner(),
        free=free,
        check=partial(allow, free=free),
    )


def make_rerun(engine: Engine, session: str, asked: bodies.Rerun, *, key: str | None) -> Submitted:
    """Creates a session from the changed document of another one, for the request's caller."""
    free = may_bring_commands(engine)
    allow(asked, free=free)
    changes = Changes(
        task=asked.task, checkers=asked.checkers, agent=asked.agent, inputs=asked.inputs,
        label=asked.label,
    )  # fmt: skip
    return engine.reruns.rerun(
        session,
        changes,
        environment=environment_of(asked),
        key=key,
        owner=current_owner(),
        free=free,
        check=partial(allow, free=free),
    )
