"""What workers can run with the environment of a session: its PATH and variables count, not theirs.

Agents and tools are checked at submit by the reports of the workers. A report is of the worker's
own environment, so it is corrected here.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TypeVar

from app.domain.environment.session import SessionEnvironment
from leadhand.models.views.fleet import AgentHere, UsableHere, WorkerView

U = TypeVar("U", bound=UsableHere)


def workers_for(workers: Sequence[WorkerView], environment: SessionEnvironment) -> list[WorkerView]:
    """Returns copies of the workers, with agents, tools and PATH as in a session's environment."""
    if environment.is_empty:
        return [*workers]
    path = environment.shell.get("PATH")
    return [
        worker.model_copy(
            update={
                "agents_here": [_for(agent, environment) for agent in worker.agents_here],
                "tools_here": [_for(tool, environment) for tool in worker.tools_here],
                "path": environment.passed.get("PATH") or path or worker.path,
            }
        )
        for worker in workers
    ]


def _for(one: U, environment: SessionEnvironment) -> U:
    """The report on an agent or a tool; only the PATH of a shell here can be searched here."""
    if one.lacks is None and one.why_not is not None:
        return one
    path, why_not = environment.shell.get("PATH"), one.why_not
    if one.program is not None and path and "PATH" not in environment.passed:
        there = shutil.which(one.program, path=path) is not None
        file = "agents.toml" if isinstance(one, AgentHere) else "tools.toml"
        hint = f"install it on this PATH, or set its command in {file}"
        missing = f"the program {one.program!r} is not on the PATH of this shell; {hint}"
        why_not = None if there and one.lacks == "program" else why_not if there else missing
    elif one.lacks == "program" and "PATH" in environment.passed:
        why_not = None  # the worker will report whether it is there
    if why_not is None or one.lacks == "variable":
        why_not = _variable_missing(one, environment, why_not)
    return one.model_copy(update={"why_not": why_not})


def _variable_missing(
    one: UsableHere, environment: SessionEnvironment, why_not: str | None
) -> str | None:
    given = {**environment.shell, **environment.passed}
    for name in one.needs_env:
        if name in given and not given[name]:
            return f"the variable {name} is not set here; export it, or pass it with --env"
    if why_not is not None and any(given.get(name) for name in one.needs_env):
        return None  # the worker will report what else is missing
    return why_not
