"""Calls a user's Python function, `module:function`, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from workers.body_task import BodyTask
from workers.sandbox import ProcessResult, run

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
) -> Called:
    """Call the function with the context; modules are looked for in the working folder first."""
    told = {**context, "session": task.session, "step": task.address, "cwd": str(task.folder)}
    returned = task.spill / _RETURNED
    with contextlib.suppress(FileNotFoundError):
        returned.unlink()
    line = (sys.executable, "-P", "-m", "leadhand.call", name, str(returned))
    command = task.command(line, prompt=json.dumps(told), timeout_s=timeout_s, variables=variables)
    result = run(command, cancel)
    try:
        with returned.open(encoding="utf-8") as file:
            word, value = json.loads(file.read(_RETURNED_BYTES))
    except (OSError, ValueError):
        return Called(result, unfinished=True)
    if word == "missing":
        return Called(result, missing=str(value))
    if word == "raised":
        return Called(result, raised=str(value))
    return Called(result, value=value)
