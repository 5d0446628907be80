"""Calls a user's Python function, `module:function`, outside of the worker's own process."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from workers import environment
from workers.body_task import BodyTask
from workers.capture import Captured
from workers.sandbox import ProcessResult, run
from workers.warm import Answered, Call, Calls, Where

_RETURNED = "returned.json"
#: Bytes of JSON that a function may return.
_RETURNED_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class Called:
    """How the call went."""

    result: ProcessResult
    value: JsonValue = None
    #: The traceback of what it raised.
    raised: str | None = None
    #: Why there is no such function to call.
    missing: str | None = None
    #: Why a tool cannot be called with these arguments.
    refused: str | None = None
    #: Whether the process ended before the function did.
    unfinished: bool = False


def call(
    task: BodyTask,
    name: str,
    context: Mapping[str, JsonValue],
    *,
    timeout_s: float,
    cancel: threading.Event,
    variables: Iterable[str] = (),
    quick: bool = False,
    tools: Sequence[Path] = (),
) -> Called:
    """Call the function with the context; modules are looked for in the working folder first.

    One that is declared quick shares its process with others of its folder. With the folders of
    tools it is one of those: the context is all that it is told.
    """
    shelf = os.pathsep.join(map(str, tools))
    if quick and task.warm is not None:
        ours = call_of(task, name, context, shelf)
        return called_warm(task.warm, ours, timeout_s=timeout_s, cancel=cancel)
    told = _told_to(task, context, shelf)
    returned = task.spill / _RETURNED
    with contextlib.suppress(FileNotFoundError):
        returned.unlink()
    line: tuple[str, ...] = (sys.executable, "-P", "-m", "leadhand.call", name, str(returned))
    line = (*line, shelf) if shelf else line
    command = task.command(line, prompt=json.dumps(told), timeout_s=timeout_s, variables=variables)
    result = run(command, cancel)
    try:
        with returned.open(encoding="utf-8") as file:
            word, value = json.loads(file.read(_RETURNED_BYTES))
    except (OSError, ValueError):
        return Called(result, unfinished=True)
    return _told(result, word, value)


def call_of(task: BodyTask, name: str, context: Mapping[str, JsonValue], shelf: str = "") -> Call:
    """How a function that is declared quick is called in a process that stays."""
    env = task.command(name).env
    ours = {key: value for key, value in env.items() if key.startswith(environment.OURS)}
    shared = {key: value for key, value in env.items() if key not in ours}
    return Call(name, _told_to(task, context, shelf), ours, Where(task.folder, shared, shelf))


def _told_to(task: BodyTask, context: Mapping[str, JsonValue], shelf: str) -> dict[str, JsonValue]:
    """What the function is given: a tool its arguments alone."""
    about = {"session": task.session, "step": task.address, "cwd": str(task.folder)}
    return dict(context) if shelf else {**context, **about}


def _told(result: ProcessResult, word: str, value: JsonValue) -> Called:
    if word == "missing":
        return Called(result, missing=str(value))
    if word == "refused":
        return Called(result, refused=str(value))
    if word == "raised":
        return Called(result, raised=str(value))
    return Called(result, value=value)


def called_warm(warm: Calls, ours: Call, *, timeout_s: float, cancel: threading.Event) -> Called:
    """The same in a process that stays, of a call that is made up."""
    began = time.time_ns() // 1_000_000
    why: str | None = None
    try:
        answer = warm.call(ours, timeout_s=timeout_s, cancel=cancel)
    except OSError as error:
        answer, why = Answered(end="gone"), str(error)
    result = ProcessResult(
        exit_code=0 if answer.end is None else None,
        signal=None,
        stdout=Captured(answer.printed, len(answer.printed)),
        stderr=Captured(),
        started_ms=began,
        ended_ms=time.time_ns() // 1_000_000,
        timed_out=answer.end == "timed_out",
        cancelled=answer.end == "cancelled",
        not_started=why,
    )
    if answer.end is not None:
        return Called(result, unfinished=True)
    return _told(result, answer.word, answer.value)
