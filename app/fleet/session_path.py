"""What workers can run with the environment of a session: its PATH and variables count, not theirs.

Agents are checked at submit by the reports of the workers. A report is of the worker's own
environment, so it is corrected here.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from app.domain.environment.session import SessionEnvironment
from leadhand.models.views import AgentHere, WorkerView


def workers_for(workers: Sequence[WorkerView], environment: SessionEnvironment) -> list[WorkerView]:
    """The workers as they are for a session with this environment."""
    if environment.is_empty:
        return [*workers]
    path = environment.shell.get("PATH")
    return [
        worker.model_copy(
            update={
                "agents_here": [_for(agent, environment) for agent in worker.agents_here],
                "path": environment.passed.get("PATH") or path or worker.path,
            }
        )
        for worker in workers
    ]


def _for(agent: AgentHere, environment: SessionEnvironment) -> AgentHere:
    """The report on an agent; only the PATH of a shell on this machine can be searched here."""
    if agent.lacks is None and agent.why_not is not None:
        return agent
    path, why_not = environment.shell.get("PATH"), agent.why_not
    if agent.program is not None and path and "PATH" not in environment.passed:
        there = shutil.which(agent.program, path=path) is not None
        hint = "install it on this PATH, or set its command in agents.toml"
        missing = f"the program {agent.program!r} is not on the PATH of this shell; {hint}"
        why_not = None if there and agent.lacks == "program" else why_not if there else missing
    elif agent.lacks == "program" and "PATH" in environment.passed:
        why_not = None  # the worker will report whether it is there
    if why_not is None or agent.lacks == "variable":
        why_not = _variable_missing(agent, environment, why_not)
    return agent.model_copy(update={"why_not": why_not})


def _variable_missing(
    agent: AgentHere, environment: SessionEnvironment, why_not: str | None
) -> str | None:
    given = {**environment.shell, **environment.passed}
    for name in agent.needs_env:
        if name in given and not given[name]:
            return f"the variable {name} is not set here; export it, or pass it with --env"
    if why_not is not None and any(given.get(name) for name in agent.needs_env):
        return None  # the worker will report what else is missing
    return why_not
