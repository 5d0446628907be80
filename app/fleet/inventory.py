"""The inventories that workers publish, and the programs that they can start.

Agents and tools are checked at submit by the reports of the workers. A report is of the worker's
own environment, so it is corrected for the session's.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from pydantic import JsonValue

from app.core.addresses import iso
from app.core.environment import SessionEnvironment
from leadhand.models.views.fleet import AgentHere, UsableHere, WorkerView

#: Validity of an inventory that does not state its own.
USUAL_MS = 45_000
#: How long an expired inventory is kept, for the diagnosis of missing workers.
KEPT_MS = 24 * 3600 * 1000
U = TypeVar("U", bound=UsableHere)
#: Shell builtins and keywords, which are not programs on the PATH.
_BUILTINS = frozenset(shlex.split(
    "'.' : [ alias break cd command continue echo eval exec exit export false for if printf pwd"
    " read set shift test time trap true type ulimit umask unset until wait while '{' '('"
))  # fmt: skip
_SHELL_SIGNS = frozenset("|&;<>()$`\\\"'*?[#~=%!{}\n")


class Inventory(NamedTuple):
    """The last inventory of a worker, with its expiry."""

    worker: WorkerView
    seen_ms: int
    #: After this time the worker counts as gone.
    until_ms: int


@lru_cache(maxsize=256)
def inventory_of(name: str, text: str) -> Inventory:
    """Parses a worker's stored inventory (JSON) into its view, publication time and expiry time.

    >>> inventory_of("one", '{"place": "here", "seen_ms": 1000}').until_ms
    46000
    """
    fields = json.loads(text)
    seen_ms = int(fields.pop("seen_ms", 0))
    until_ms = int(fields.pop("until_ms", seen_ms + USUAL_MS))
    # A newer worker may send fields that this version does not know.
    worker = WorkerView.model_validate({**fields, "name": name, "seen_at": iso(seen_ms)})
    return Inventory(worker, seen_ms, until_ms)


def text_of(fields: Mapping[str, JsonValue], *, now_ms: int, holds_ms: int) -> str:
    """Serializes a worker's inventory as JSON, with the current time and its expiry time."""
    text = json.dumps(
        {**fields, "seen_ms": now_ms, "until_ms": now_ms + holds_ms}, ensure_ascii=False
    )
    return text.encode("utf-8", "replace").decode()  # a path that is not UTF-8 cannot be sent


def live_workers(texts: Mapping[str, str], now_ms: int) -> list[WorkerView]:
    """Returns the fleet's workers whose inventory has not expired, parsed and sorted by name."""
    return [one for one in all_live_workers(texts, now_ms) if one.session is None]


def all_live_workers(texts: Mapping[str, str], now_ms: int) -> list[WorkerView]:
    """Returns the live workers of the fleet and those of local steps, which serve one session."""
    found = (inventory_of(name, text) for name, text in sorted(texts.items()))
    return [one.worker for one in found if now_ms <= one.until_ms]


def consumed_queues(worker: WorkerView) -> list[str]:
    """Returns the queues that a worker says it consumes; if it does not say, all of its queues.

    >>> consumed_queues(WorkerView(name="one", place="here", queues=["a", "b"]))
    ['a', 'b']
    >>> consumed_queues(WorkerView(name="one", place="here", queues=["a", "b"], consumes=["b"]))
    ['b']
    """
    return worker.queues if worker.consumes is None else worker.consumes


def all_queues(texts: Mapping[str, str]) -> set[str]:
    """Returns the queues of all workers, expired ones included."""
    found = (inventory_of(name, text) for name, text in texts.items())
    return {queue for one in found for queue in one.worker.queues}


def long_expired(texts: Mapping[str, str], now_ms: int) -> list[str]:
    """Returns the names of workers whose inventory expired so long ago that it can be deleted."""
    return [n for n, t in texts.items() if now_ms - inventory_of(n, t).until_ms > KEPT_MS]


class _Reported(Protocol):
    @property
    def why_not(self) -> str | None:
        """Why it cannot be used; None if it can."""


T = TypeVar("T", bound=_Reported)


class Availability(NamedTuple, Generic[T]):
    """An agent or tool: where it can be used, and why not elsewhere."""

    #: The report of a place that can use it, if there is one.
    first: T
    at: list[str]
    why_not: Mapping[str, str]


def summarize(found: Sequence[tuple[str, T]]) -> Availability[T]:
    """Merges reports on one agent or tool: the report, where it is usable, and why not elsewhere.

    Needs at least one report.
    """
    at = sorted({place for place, one in found if one.why_not is None})
    first = next((one for _, one in found if one.why_not is None), found[0][1])
    why_not = {place: one.why_not for place, one in found if place not in at}
    return Availability(
        first, at, {place: why for place, why in sorted(why_not.items()) if why is not None}
    )


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


def why_no_program(path: Path) -> str:
    """Returns why the file cannot be executed, with the fix; '' if it can.

    >>> why_no_program(Path("/"))
    'it is a folder; name a program in it'
    """
    if path.is_dir():
        return "it is a folder; name a program in it"
    if not path.exists():
        return "it is not found; install it or give its path"
    if not path.is_file() or not os.access(path, os.X_OK):
        return f"it is not executable; run `chmod +x {path.name}`, or start it by its interpreter"
    return ""


def why_no_folder(path: Path) -> str:
    """Returns why a path is not a folder, with the fix; '' if it is one."""
    if path.is_dir():
        return ""
    if path.exists():
        return "it is a file; name a folder"
    return "there is no such folder; create it or name another"


def program_of(command: str) -> str | None:
    """Returns the program in a command line, its first word; None if only a shell can find it."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0] in _BUILTINS or _SHELL_SIGNS.intersection(words[0]):
        return None
    return words[0]
