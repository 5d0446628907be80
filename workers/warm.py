"""Processes that stay: each calls functions of one folder that are declared quick, one at a time.

Such a function still runs outside of the worker, with a clean environment, and is ended with its
process where it overruns its time or is to stop. What it does not get is a process of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue

from workers import launch
from workers.sandbox import GRACE_S
from workers.strays import MARK, kill_strays

#: Processes that wait to be asked again, and how often and how long one of them is asked.
KEPT = 4
CALLS = 5000
AGE_S = 600.0
#: How often it is looked whether a call is to end.
_POLL_S = 0.05
#: How much of an answer is read at once; a buffer that is larger is costly to have.
_CHUNK_BYTES = 64 * 1024
#: Bytes that an answer may have.
_ANSWER_BYTES = 16 * 1024 * 1024

End = Literal["timed_out", "cancelled", "gone"]


class Asked(NamedTuple):
    """One call: the function, its context, and what its environment says of the step."""

    name: str
    context: Mapping[str, JsonValue]
    env: Mapping[str, str]
    #: Of a tool, the folders that its module is looked for in.
    tools: str = ""


class Answered(NamedTuple):
    """What it came to, or why it came to nothing."""

    word: str = ""
    value: JsonValue = None
    printed: str = ""
    end: End | None = None


class Warm:
    """The warm processes of one worker process."""

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._lock = threading.Lock()

    def call(
        self, folder: Path, env: Mapping[str, str], asked: Asked, *, timeout_s: float,
        cancel: threading.Event,
    ) -> Answered:  # fmt: skip
        """Call the function in the folder. Raises OSError where no process can be started."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._process(folder, env, asked.tools) as process:
                answer = process.ask(asked, deadline, cancel)
            if answer.word != "stale":
                return answer

    def close(self) -> None:
        """End those that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    @contextmanager
    def _process(self, folder: Path, env: Mapping[str, str], tools: str) -> Iterator[_Process]:
        process = self._taken(folder, env, tools) or _Process(folder, env, tools)
        try:
            yield process
        except BaseException:
            process.end()
            raise
        self._put_back(process)

    def _taken(self, folder: Path, env: Mapping[str, str], tools: str) -> _Process | None:
        with self._lock:
            for process in reversed(self._idle):
                if (process.folder, process.env, process.tools) == (folder, env, tools):
                    self._idle.remove(process)
                    return process
        return None

    def _put_back(self, process: _Process) -> None:
        if not process.goes_on:
            return process.end()
        with self._lock:
            self._idle.append(process)
            surplus = self._idle.pop(0) if len(self._idle) > KEPT else None
        if surplus is not None:
            surplus.end()
        return None


@dataclass
class _Link:
    process: subprocess.Popen[bytes]
    socket: socket.socket
    lifeline: int


class _Process:
    """One process under a launcher, which ends its whole tree when the lifeline is cut."""

    def __init__(self, folder: Path, env: Mapping[str, str], tools: str) -> None:
        self.folder, self.env, self.tools = folder, env, tools
        self.goes_on = True
        self._mark = secrets.token_hex(8)
        self._link = _started(folder, {**env, MARK: self._mark}, tools)
        self._readable = select.poll()
        self._readable.register(self._link.socket, select.POLLIN)
        self._calls, self._until = 0, time.monotonic() + AGE_S

    def ask(self, asked: Asked, deadline: float, cancel: threading.Event) -> Answered:
        """The answer; a process that did not give one is of no use any more."""
        self._calls += 1
        self.goes_on = False
        line = json.dumps({"name": asked.name, "context": asked.context, "env": dict(asked.env)})
        with contextlib.suppress(OSError):
            self._link.socket.sendall(line.encode() + b"\n")
        answer = self._read(deadline, cancel)
        if isinstance(answer, str):
            return Answered(end=answer)
        try:
            word, value, printed, goes_on = json.loads(answer)
        except ValueError:
            return Answered(end="gone")
        young = self._calls < CALLS and time.monotonic() < self._until
        self.goes_on = bool(goes_on) and young
        return Answered(str(word), value, str(printed))

    def end(self) -> None:
        """Have its tree ended, and wait until it is."""
        self._link.socket.close()
        os.close(self._link.lifeline)
        try:
            code = self._link.process.wait(timeout=GRACE_S + 8)
        except subprocess.TimeoutExpired:
            self._link.process.kill()
            code = self._link.process.wait()
        if code != 0:
            kill_strays(self._mark)

    def _read(self, deadline: float, cancel: threading.Event) -> bytes | End:
        """One line, or why there is none."""
        parts: list[bytes] = []
        while True:
            if cancel.is_set():
                return "cancelled"
            left = deadline - time.monotonic()
            if left <= 0:
                return "timed_out"
            if self._readable.poll(min(_POLL_S, left) * 1000):
                chunk = self._chunk()
                parts.append(chunk)
                if not chunk or sum(map(len, parts)) > _ANSWER_BYTES:
                    return "gone"
                if chunk.endswith(b"\n"):
                    return b"".join(parts)

    def _chunk(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._link.socket.recv(_CHUNK_BYTES)
        return b""


def _started(folder: Path, env: Mapping[str, str], tools: str) -> _Link:
    ours, theirs = socket.socketpair()
    lifeline, our_end = os.pipe()
    status = os.open(os.devnull, os.O_WRONLY)
    try:
        told = [str(lifeline), str(status), str(GRACE_S), str(folder)]
        command = [sys.executable, "-P", "-m", "leadhand.call_many", str(theirs.fileno())]
        command += [tools] if tools else []
        process = subprocess.Popen(  # noqa: S603 - calling what the user names is its purpose
            [sys.executable, "-I", "-S", launch.__file__, *told, *command],
            env=dict(env),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lifeline, status, theirs.fileno()),
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        os.close(our_end)
        raise
    finally:
        theirs.close()
        os.close(lifeline)
        os.close(status)
    return _Link(process, ours, our_end)
