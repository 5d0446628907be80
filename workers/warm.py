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
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from workers import launch
from workers.sandbox import GRACE_S
from workers.strays import MARK, kill_strays

#: Processes that wait to be asked again, and how often and how long one of them is asked.
KEPT = 4
CALLS = 5000
AGE_S = 600.0
#: Seconds in which the answers of a row follow one another, as long as its calls are quick indeed.
SOON_S = 0.02
#: Bytes that are sent at once to a process that does not read: more would not fit into the socket,
#: and if it were to answer meanwhile, each would wait for the other for ever.
ROW_BYTES = 32 * 1024
#: How often it is looked whether a call is to end.
_POLL_S = 0.05
#: How much of an answer is read at once; a buffer that is larger is costly to have.
_CHUNK_BYTES = 64 * 1024
#: Bytes that an answer may have.
_ANSWER_BYTES = 16 * 1024 * 1024

End = Literal["timed_out", "cancelled", "gone"]


class Where(NamedTuple):
    """What all calls of one process share."""

    folder: Path
    env: Mapping[str, str]
    #: Of tools, the folders that their modules are looked for in.
    tools: str = ""


class Call(NamedTuple):
    """One call: the function, its context, and what its environment says of the step."""

    name: str
    context: Mapping[str, JsonValue]
    env: Mapping[str, str]
    where: Where


class Answered(NamedTuple):
    """What it came to, or why it came to nothing."""

    word: str = ""
    value: JsonValue = None
    printed: str = ""
    end: End | None = None


class Calls(Protocol):
    """Calls functions in processes that stay."""

    def call(self, call: Call, *, timeout_s: float, cancel: threading.Event) -> Answered:
        """What the function answered. Raises OSError where no process can be started."""


class Warm:
    """The warm processes of one worker process."""

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._lock = threading.Lock()

    def call(self, call: Call, *, timeout_s: float, cancel: threading.Event) -> Answered:
        """Call the function in its folder. Raises OSError where no process can be started."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._process(call.where) as process:
                process.send([_line(call)])
                answer = process.hear(deadline, cancel)
            if answer.word != "stale":
                return answer

    @contextmanager
    def row(self) -> Iterator[Row]:
        """For calls that are sent at once."""
        row = Row(self)
        try:
            yield row
        finally:
            row.close()

    def idle(self, where: Where) -> _Process | None:
        """One that stands there and nobody else asks, until it is put back."""
        with self._lock:
            for process in reversed(self._idle):
                if process.where == where:
                    self._idle.remove(process)
                    return process
        return None

    def put_back(self, process: _Process) -> None:
        """Let others ask it, or end it where it is of no more use."""
        if not process.goes_on or process.is_old:
            return process.end()
        with self._lock:
            self._idle.append(process)
            surplus = self._idle.pop(0) if len(self._idle) > KEPT else None
        if surplus is not None:
            surplus.end()
        return None

    def close(self) -> None:
        """End those that wait."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    @contextmanager
    def _process(self, where: Where) -> Iterator[_Process]:
        process = self.idle(where) or _Process(where)
        try:
            yield process
        except BaseException:
            process.end()
            raise
        self.put_back(process)


class Row:
    """Calls that one process is sent at once: it begins them in turn, and answers in that order.

    What cannot be had from it is called by itself.
    """

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self._process: _Process | None = None
        self._left = deque[Call]()

    def send(self, calls: Sequence[Call], *, begin_by: float) -> None:
        """Ask for calls of one process, if it stands there: to start one takes as long as many.

        None is begun in the row after that time of the monotonic clock.
        """
        lines = [_line(call, by=begin_by) for call in calls]
        if len(calls) < 2 or sum(map(len, lines)) > ROW_BYTES:
            return
        self._process = self._warm.idle(calls[0].where)
        if self._process is not None:
            self._process.send(lines)
            self._left.extend(calls)

    def soon(self) -> bool:
        """Whether the next of them is done within a moment."""
        process = self._at_work()
        return process is not None and process.peek(SOON_S) not in (None, "late", "stale")

    def call(self, call: Call, *, timeout_s: float, cancel: threading.Event) -> Answered:
        """As `Warm.call`."""
        deadline = time.monotonic() + timeout_s
        while call in self._left and (process := self._at_work()):
            own = self._left.popleft() == call
            answer = process.hear(deadline, cancel)
            if not process.goes_on:  # what it still does ends before anybody is told of it
                self.close()
            if own and answer.word not in ("stale", "late"):
                return answer
        return self._warm.call(call, timeout_s=timeout_s, cancel=cancel)

    def close(self) -> None:
        """Hear those out whom nobody asked about; one that takes longer ends with its process."""
        while process := self._at_work():
            self._left.popleft()
            process.hear(time.monotonic() + SOON_S, threading.Event())
        process, self._process = self._process, None
        if process is not None:
            self._warm.put_back(process)

    def _at_work(self) -> _Process | None:
        """The process, as long as it has answers to give."""
        process = self._process
        return process if process is not None and process.goes_on and self._left else None


@dataclass
class _Link:
    process: subprocess.Popen[bytes]
    socket: socket.socket
    lifeline: int


class _Process:
    """One process under a launcher, which ends its whole tree when the lifeline is cut."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.goes_on = True
        self._mark = secrets.token_hex(8)
        self._link = _started(where, self._mark)
        self._heard = b""
        self._readable = select.poll()
        self._readable.register(self._link.socket, select.POLLIN)
        self._calls, self._until = 0, time.monotonic() + AGE_S

    def send(self, lines: Sequence[bytes]) -> None:
        """Ask for calls."""
        self._calls += len(lines)
        with contextlib.suppress(OSError):
            self._link.socket.sendall(b"".join(lines))

    def peek(self, seconds: float) -> str | None:
        """The word of the next answer if that comes in this time; it stays to be heard."""
        until = time.monotonic() + seconds
        while b"\n" not in self._heard:
            left = until - time.monotonic()
            if left <= 0 or not self._readable.poll(left * 1000):
                return None
            chunk = self._chunk()
            if not chunk:
                return "gone"
            self._heard += chunk
        try:
            return str(json.loads(self._heard.partition(b"\n")[0])[0])
        except ValueError:
            return "gone"

    def hear(self, deadline: float, cancel: threading.Event) -> Answered:
        """The next answer; a process that did not give one is of no use any more."""
        self.goes_on = False
        answer = self._read(deadline, cancel)
        if isinstance(answer, str):
            return Answered(end=answer)
        try:
            word, value, printed, goes_on = json.loads(answer)
        except ValueError:
            return Answered(end="gone")
        self.goes_on = bool(goes_on)
        return Answered(str(word), value, str(printed))

    @property
    def is_old(self) -> bool:
        """Whether it was asked often enough, or stood long enough."""
        return self._calls >= CALLS or time.monotonic() >= self._until

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
        parts, self._heard = [self._heard], b""
        while b"\n" not in parts[-1]:
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
        end, _, self._heard = parts.pop().partition(b"\n")
        return b"".join([*parts, end])

    def _chunk(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._link.socket.recv(_CHUNK_BYTES)
        return b""


def _line(call: Call, *, by: float | None = None) -> bytes:
    """The call as it is sent; what is not begun by that time is answered `late`."""
    told = {"name": call.name, "context": call.context, "env": dict(call.env), "by": by}
    return json.dumps(told).encode() + b"\n"


def _started(where: Where, mark: str) -> _Link:
    ours, theirs = socket.socketpair()
    lifeline, our_end = os.pipe()
    status = os.open(os.devnull, os.O_WRONLY)
    try:
        told = [str(lifeline), str(status), str(GRACE_S), str(where.folder)]
        command = [sys.executable, "-P", "-m", "leadhand.call_many", str(theirs.fileno())]
        command += [where.tools] if where.tools else []
        process = subprocess.Popen(  # noqa: S603 - calling what the user names is its purpose
            [sys.executable, "-I", "-S", launch.__file__, *told, *command],
            env={**where.env, MARK: mark},
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
