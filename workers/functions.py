"""Calls a user's Python function, `module:function`, in a process of its own or a warm one."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Literal

from pydantic import JsonValue

from app.core.program import Action
from leadhand.functions import runner
from leadhand.models.git_settings import repository_top
from workers.inline_calls import CallResult, call_result
from workers.processes import environment
from workers.processes.nested_repositories import is_by_product
from workers.processes.output import Captured
from workers.processes.process import ProcessResult, run
from workers.processes.warm_pool import Call, CallReply, Warm, Where
from workers.task import BodyTask

_RETURNED = "returned.json"
#: The most bytes of the file with the result and the word before it.
_RETURNED_BYTES = runner.RESULT_BYTES + 1024


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
    search: Literal["never"] | None = None,
) -> CallResult:
    """Call a user's Python function in another process; return its result, also if the call failed.

    By default its module is searched in the working folder first, and last for a session that may
    not bring commands. It runs under the submitter's Python if that is known. A quick function runs
    in a warm process of its folder. If tool folders are given, the function is a tool: its module
    is searched there, it gets the context alone, and runs under this Python.
    """
    if tools:
        python, searched = "", f"{runner.TOOLS}{os.pathsep.join(map(str, tools))}"
    else:
        context = with_place(task, context)
        python = task.session_environment.python or ""
        searched = search or ("first" if task.is_free else "last")
    if quick and task.warm is not None:
        ours = _warm_call(task, name, context, python, searched)
        return _call_in_warm_process(task, task.warm, ours, timeout_s=timeout_s, cancel=cancel)
    task.on_slow()
    if task.action is Action.CHECK:
        forget_bytecode(task, task.bytecode)
    returned = task.spill / _RETURNED
    with contextlib.suppress(FileNotFoundError):
        returned.unlink()
    line = (python or sys.executable, runner.__file__, "call", searched, name, str(returned))
    command = task.command(
        line, prompt=json.dumps(context), timeout_s=timeout_s, variables=variables
    )
    result = run(command, cancel)
    try:
        with returned.open(encoding="utf-8") as file:
            word, value = json.loads(file.read(_RETURNED_BYTES))
    except (OSError, ValueError):
        return CallResult(result, unfinished=True)
    return call_result(result, word, value)


def _warm_call(
    task: BodyTask, name: str, context: Mapping[str, JsonValue], python: str, searched: str
) -> Call:
    """Builds the call of a quick function for a warm process, which serves many attempts."""
    bytecode = task.spill.parent.parent / "pycache"
    if task.action is Action.CHECK:
        forget_bytecode(task, bytecode)
    env = environment.with_bytecode_in(task.command(name).env, bytecode)
    ours = {key: value for key, value in env.items() if key.startswith(environment.OURS)}
    shared = {key: value for key, value in env.items() if key not in ours}
    where = Where(task.folder, shared, python, searched, task.session_environment.umask)
    return Call(name, context, ours, where, task.until)


def forget_bytecode(task: BodyTask, bytecode: Path) -> None:
    """Delete the bytecode of what is in the working folder; that of installed packages is kept.

    Compiling all that a test runner imports takes seconds. A doer may have written there: links
    lead nowhere, and nothing but bytecode is deleted.
    """
    if task.cwd is None:
        return
    inside = task.own_top or task.cwd
    top = repository_top(inside) or inside
    for spelled in {str(top), os.path.realpath(top)}:
        # Texts, not paths: before a quick check the paths would cost more than the check.
        parts = filter(None, spelled.split("/"))
        places = [*accumulate(parts, "{}/{}".format, initial=str(bytecode))]
        _delete_links(places)
        for folder, below, files in os.walk(places[-1]):
            _delete_links(f"{folder}/{name}" for name in below)
            below[:] = [name for name in below if not is_by_product(name)]
            for name in files:
                if name.endswith(".pyc"):
                    Path(folder, name).unlink(missing_ok=True)


def _delete_links(paths: Iterable[str]) -> None:
    for path in paths:
        if os.path.islink(path):  # noqa: PTH114
            Path(path).unlink(missing_ok=True)


def with_place(task: BodyTask, context: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Returns a call's context with the session, the step and the folder added."""
    return {**context, "session": task.session, "step": task.address, "cwd": str(task.folder)}


def _call_in_warm_process(
    task: BodyTask, warm: Warm, ours: Call, *, timeout_s: float, cancel: threading.Event
) -> CallResult:
    """Send a prepared call to a warm process and wait for its result."""
    began = time.time_ns() // 1_000_000
    why: str | None = None
    try:
        answer = warm.call(ours, timeout_s=timeout_s, cancel=cancel, on_slow=task.on_slow)
    except OSError as error:
        answer, why = CallReply(end="gone"), str(error)
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
        return CallResult(result, unfinished=True)
    return call_result(result, answer.word, answer.value)
