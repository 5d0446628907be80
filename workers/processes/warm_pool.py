"""A pool of warm processes for quick functions: each process calls those of one folder, in turn.

A quick function runs outside of the worker with a clean environment, like any function. It shares
its process with other calls, and the process is ended if the call times out or is cancelled.

An inline call runs a user's function in a pool process. The function may hold the interpreter, so
that no thread of that process runs. The worker's main process watches the call from outside, with
what the pool process wrote here before it began.
"""

from __future__ import annotations

import contextlib
import json
import mmap
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from celery.utils.log import current_process_index  # type: ignore[attr-defined]  # not in its stubs
from pydantic import JsonValue

from leadhand.functions import runner
from workers.processes import launcher
from workers.processes.lease_renewal import WarmLease
from workers.processes.orphans import MARK, kill_orphans, new_mark
from workers.processes.process import GRACE_S, unlimited

#: Idle processes that are kept, and the most calls and seconds for which one is used.
KEPT = 4
CALLS = 5000
AGE_S = 600.0
#: Seconds to wait for the next reply of a row; a slower call is not quick.
SOON_S = 0.02
#: The most bytes sent at once. More may not fit into the socket's buffer while the process does not
#: read, and if it wrote a reply meanwhile, both sides would block for ever.
ROW_BYTES = 32 * 1024
#: A process that has idled for so many seconds is notified that it has no lease to keep.
REST_S = 1.0
#: Seconds between two checks whether a call must end.
_POLL_S = 0.05
#: Bytes read at once; a larger buffer is slow to allocate.
_CHUNK_BYTES = 64 * 1024
#: The most bytes of a reply: the result, and what the function printed, which JSON may escape.
_ANSWER_BYTES = runner.RESULT_BYTES + 16 * runner.PRINTED
End = Literal["timed_out", "cancelled", "gone"]
#: When the working folder is searched for a function's module.
Search = Literal["first", "last", "never"]
#: Pool processes with an index below this have slots; each has two, since a process that replaces a
#: killed one takes its index before the worker has read the slot.
_INDEXES = 512
_EACH = 2
#: Bytes of a slot, and the most that a process can write about a call.
_SLOT_BYTES = 8192
#: Number of the call, pid, start and time limit (on the monotonic clock), whether the worker has
#: handed back the other steps in hand, and the length of the text.
_HEAD = struct.Struct("=QQddII")
MOST_BYTES = _SLOT_BYTES - _HEAD.size


class Where(NamedTuple):
    """The key of a warm process: its calls have the folder, environment and tools in common."""

    folder: Path
    env: Mapping[str, str]
    #: For tools: the folders that are searched for their modules.
    tools: str = ""
    #: For other functions: the Python that runs them, by default this one, and when the folder is
    #: searched for their modules.
    python: str = ""
    search: Search = "first"
    #: None for the worker's.
    umask: int | None = None


class Call(NamedTuple):
    """One call of a function: its context, the variables of its step, and its process's key."""

    name: str
    context: Mapping[str, JsonValue]
    env: Mapping[str, str]
    where: Where
    #: Returns when the attempt's lease expires, on the monotonic clock: the process is killed then.
    until: Callable[[], float] = unlimited


class CallReply(NamedTuple):
    """The result of a call, or why it has none."""

    word: str = ""
    value: JsonValue = None
    printed: str = ""
    end: End | None = None


class Calls(Protocol):
    """Calls functions in warm processes."""

    def call(self, call: Call, *, timeout_s: float, cancel: threading.Event) -> CallReply:
        """Call a function in a warm process, return its reply. Raises OSError if none can start."""


class Warm:
    """The warm processes of one worker process."""

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        #: Set when a process becomes idle whose launcher knows of a lease.
        self._leased = threading.Event()
        self._resting: threading.Thread | None = None

    def call(self, call: Call, *, timeout_s: float, cancel: threading.Event) -> CallReply:
        """Call a function in a warm process; return its reply, or why there is none."""
        deadline = time.monotonic() + timeout_s
        while True:
            with self._process(call.where) as process:
                process.send([call], [_line(call)])
                answer = process.receive(deadline, cancel)
            if answer.word == "late":  # its lease had expired, so it was not called
                return CallReply(end="cancelled")
            if answer.word != "stale":
                return answer

    @contextmanager
    def row(self) -> Iterator[Row]:
        """Yield a series whose calls go to one warm process together; closes it at the end."""
        row = Row(self)
        try:
            yield row
        finally:
            row.close()

    def idle(self, where: Where) -> _Process | None:
        """Take an idle process for this folder and environment from the pool; None without one."""
        while True:
            with self._lock:
                ours = (process for process in reversed(self._idle) if process.where == where)
                process = next(ours, None)
                if process is None:
                    return None
                self._idle.remove(process)
            if not process.lease.is_over:
                return process
            process.end()  # the worker was frozen, so that nothing notified it

    def put_back(self, process: _Process) -> None:
        """Return a process to the pool, or end it if it is broken or too old."""
        if not process.goes_on or process.is_old:
            return process.end()
        process.idle_since = time.monotonic()
        process.lease.rest_if_near()
        with self._lock:
            self._idle.append(process)
            surplus = self._idle.pop(0) if len(self._idle) > KEPT else None
            if process.lease.is_limited:
                self._rest_later()
        if surplus is not None:
            surplus.end()
        return None

    def close(self) -> None:
        """End all idle processes."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _rest_later(self) -> None:
        self._leased.set()
        if self._resting is None:
            self._resting = threading.Thread(target=self._rest, name="warm", daemon=True)
            self._resting.start()

    def _rest(self) -> None:
        """Tell processes that idle that they have no lease to keep: not each time, but soon."""
        while True:
            self._leased.wait()
            self._leased.clear()
            time.sleep(REST_S)
            with self._lock:
                for process in self._idle:
                    if process.idle_since + REST_S <= time.monotonic():
                        process.lease.rest()
                    elif process.lease.is_limited:
                        self._leased.set()

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
    """Calls that are sent to one process together: it runs them and replies in order.

    A call that the process does not reply to is made again by itself.
    """

    def __init__(self, warm: Warm) -> None:
        self._warm = warm
        self._process: _Process | None = None
        self._left = deque[Call]()

    def send(self, calls: Sequence[Call], *, begin_by: float) -> None:
        """Send two or more calls to an idle warm process at once; without one, do nothing.

        The process starts none of them after `begin_by`, on the monotonic clock.
        """
        lines = [_line(call, by=begin_by) for call in calls]
        if len(calls) < 2 or sum(map(len, lines)) > ROW_BYTES:
            return
        self._process = self._warm.idle(calls[0].where)
        if self._process is not None:
            self._process.send(calls, lines)
            self._left.extend(calls)

    def soon(self) -> bool:
        """Wait up to SOON_S for the next call's reply; return whether it came."""
        process = self._at_work()
        return process is not None and process.peek(SOON_S) not in (None, "late", "stale")

    def call(self, call: Call, *, timeout_s: float, cancel: threading.Event) -> CallReply:
        """Return the reply of a call that was sent, or call the function now."""
        deadline = time.monotonic() + timeout_s
        while call in self._left and (process := self._at_work()):
            own = self._left.popleft() == call
            answer = process.receive(deadline, cancel)
            if not process.goes_on:  # end it before the reply is reported
                self.close()
            if own and answer.word not in ("stale", "late"):
                return answer
        return self._warm.call(call, timeout_s=timeout_s, cancel=cancel)

    def close(self) -> None:
        """Discard the unused replies and give the process back to the pool; a slow one is ended."""
        while process := self._at_work():
            self._left.popleft()
            process.receive(time.monotonic() + SOON_S, threading.Event())
        process, self._process = self._process, None
        if process is not None:
            self._warm.put_back(process)

    def _at_work(self) -> _Process | None:
        """The process, while replies are due."""
        process = self._process
        return process if process is not None and process.goes_on and self._left else None


@dataclass
class _Link:
    process: subprocess.Popen[bytes]
    socket: socket.socket
    lifeline: int


class _Process:
    """One warm process under a launcher, which ends the whole tree when the lifeline is closed."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.goes_on = True
        self._mark = new_mark()
        self._link = _start(where, self._mark)
        self._buffer = b""
        self._readable = select.poll()
        self._readable.register(self._link.socket, select.POLLIN)
        self._calls, self._until = 0, time.monotonic() + AGE_S
        #: The calls without a reply.
        self._asked = deque[Call]()
        self.lease = WarmLease(self._link.lifeline)
        #: When it was put back, on the monotonic clock.
        self.idle_since = 0.0

    def send(self, calls: Sequence[Call], lines: Sequence[bytes]) -> None:
        """Send calls with their lines; the process starts none after its lease has expired."""
        self._calls += len(calls)
        self._asked.extend(calls)
        self._renew()
        with contextlib.suppress(OSError):
            self._link.socket.sendall(b"".join(lines))

    def peek(self, seconds: float) -> str | None:
        """The word of the next reply if it comes within this time; the reply stays unread."""
        until = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            left = until - time.monotonic()
            if left <= 0 or not self._readable.poll(left * 1000):
                self._renew(exactly=True)  # the call is slow
                return None
            chunk = self._chunk()
            if not chunk:
                return "gone"
            self._buffer += chunk
        try:
            return str(json.loads(self._buffer.partition(b"\n")[0])[0])
        except ValueError:
            return "gone"

    def receive(self, deadline: float, cancel: threading.Event) -> CallReply:
        """Read the next reply; a process that gives none is not used again."""
        self.goes_on = False
        answer = self._read(deadline, cancel)
        if isinstance(answer, str):
            over = answer == "gone" and time.monotonic() >= self.lease.known
            return CallReply(end="cancelled" if over else answer)
        self._asked.popleft()
        try:
            word, value, printed, goes_on = json.loads(answer)
        except ValueError:
            return CallReply(end="gone")
        self.goes_on = bool(goes_on)
        return CallReply(str(word), value, str(printed))

    @property
    def is_old(self) -> bool:
        """Whether the process has reached its limit of calls or age."""
        return self._calls >= CALLS or time.monotonic() >= self._until

    def end(self) -> None:
        """End the process tree and wait for its end."""
        self._link.socket.close()
        os.close(self._link.lifeline)
        try:
            code = self._link.process.wait(timeout=GRACE_S + 8)
        except subprocess.TimeoutExpired:
            self._link.process.kill()
            code = self._link.process.wait()
        if code != 0:
            kill_orphans(self._mark)

    def _read(self, deadline: float, cancel: threading.Event) -> bytes | End:
        """Read one line, or return why there is none."""
        parts, self._buffer = [self._buffer], b""
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
            else:
                self._renew(exactly=True)  # the call is slow
        end, _, self._buffer = parts.pop().partition(b"\n")
        return b"".join([*parts, end])

    def _renew(self, *, exactly: bool = False) -> None:
        """Limit the process to the earliest lease of the calls without a reply."""
        self.lease.limit(min(call.until() for call in self._asked), exactly=exactly)

    def _chunk(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._link.socket.recv(_CHUNK_BYTES)
        return b""


def _line(call: Call, *, by: float | None = None) -> bytes:
    """The call as a JSON line; the reply is `late` if it is not started by that time."""
    until = call.until()
    by = until if by is None else min(by, until)
    fields = {
        "name": call.name,
        "context": call.context,
        "env": dict(call.env),
        "by": None if by == float("inf") else by,
    }
    return json.dumps(fields).encode() + b"\n"


def _start(where: Where, mark: str) -> _Link:
    ours, theirs = socket.socketpair()
    lifeline, our_end = os.pipe()
    os.set_blocking(our_end, False)
    status = os.open(os.devnull, os.O_WRONLY)
    try:
        options = [str(lifeline), str(status), str(GRACE_S), "inf", str(where.folder)]
        python = where.python or sys.executable
        command = [python, runner.__file__, "serve", where.search, str(theirs.fileno())]
        if where.tools:
            served = [sys.executable, "-P", "-m", "leadhand.functions.serve"]
            command = [*served, str(theirs.fileno()), where.tools]
        process = subprocess.Popen(  # noqa: S603 - calling what the user names is its purpose
            [sys.executable, "-I", "-S", launcher.__file__, *options, *command],
            env={**where.env, MARK: mark},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(lifeline, status, theirs.fileno()),
            start_new_session=True,
            umask=-1 if where.umask is None else where.umask,
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


class RunningCall(NamedTuple):
    """An inline call that a pool process has begun."""

    slot: int
    #: Differs from that of every other call.
    number: int
    pid: int
    #: On the monotonic clock.
    started: float
    limit: float


class CallSlots:
    """The calls of a worker's pool processes; created before they are forked."""

    def __init__(self) -> None:
        count = _INDEXES * _EACH
        self._at = count  # the slots begin after a byte for each: whether a call runs in it
        self._memory = mmap.mmap(-1, count * (1 + _SLOT_BYTES))

    def own(self) -> CallSlot:
        """Return this pool process's slot in shared memory, which records its in-process calls."""
        index = (current_process_index(base=0) or 0) % _INDEXES
        first = index * _EACH
        free = (number for number in range(first, first + _EACH) if not self._memory[number])
        return CallSlot(self, next(free, first))

    def running(self) -> Iterator[RunningCall]:
        """Yield the in-process calls recorded as running, also those of killed processes."""
        slot = self._memory.find(b"\x01", 0, self._at)
        while slot >= 0:
            yield self._call(slot)
            slot = self._memory.find(b"\x01", slot + 1, self._at)

    def runs(self, call: RunningCall) -> bool:
        """Whether that call has not returned. Exact only while its process is stopped or dead."""
        return bool(self._memory[call.slot]) and self._call(call.slot) == call

    def text(self, call: RunningCall) -> bytes:
        """Return the bytes that a process stored in shared memory to describe its call."""
        length = min(self._head(call.slot)[5], MOST_BYTES)
        begin = self._place(call.slot) + _HEAD.size
        return self._memory[begin : begin + length]

    def hand_back(self, call: RunningCall) -> None:
        """Mark in shared memory that a stopped process's other steps are handed back."""
        number, pid, started, limit, _, length = self._head(call.slot)
        place = self._place(call.slot)
        _HEAD.pack_into(self._memory, place, number, pid, started, limit, 1, length)

    def free(self, call: RunningCall) -> None:
        """Mark the slot of a dead process's call as free."""
        self._memory[call.slot] = 0

    def begin(self, slot: int, number: int, limit_s: float, text: bytes) -> None:
        """Record in shared memory that a call begins. Raises ValueError if the text is too long."""
        if len(text) > MOST_BYTES:
            raise ValueError(len(text))
        begin = self._place(slot) + _HEAD.size
        self._memory[begin : begin + len(text)] = text
        self._write(slot, number, limit_s, is_handed_back=0, length=len(text))

    def restart(self, slot: int, number: int, limit_s: float) -> None:
        """Restart the clock of this process's recorded call, with a new time limit."""
        self._memory[slot] = 0
        *_, is_handed_back, length = self._head(slot)
        self._write(slot, number, limit_s, is_handed_back=is_handed_back, length=length)

    def end(self, slot: int) -> bool:
        """Mark a call as returned; returns whether the process's other steps were handed back."""
        self._memory[slot] = 0
        return bool(self._head(slot)[4])

    def _write(
        self, slot: int, number: int, limit_s: float, *, is_handed_back: int, length: int
    ) -> None:
        now, place = time.monotonic(), self._place(slot)
        head = (number, os.getpid(), now, now + limit_s, is_handed_back, length)
        _HEAD.pack_into(self._memory, place, *head)
        self._memory[slot] = 1

    def _call(self, slot: int) -> RunningCall:
        return RunningCall(slot, *self._head(slot)[:4])

    def _head(self, slot: int) -> tuple[int, int, float, float, int, int]:
        return _HEAD.unpack_from(self._memory, self._place(slot))

    def _place(self, slot: int) -> int:
        return self._at + slot * _SLOT_BYTES


class CallSlot:
    """The slot of one pool process; it makes one call at a time."""

    def __init__(self, slots: CallSlots, slot: int) -> None:
        self._slots, self._slot = slots, slot
        # Numbers of this process differ from those of one that had the slot before.
        self._number = os.getpid() << 32

    def begin(self, limit_s: float, text: bytes) -> None:
        """Record a call of this process, with a time limit in seconds. Raises ValueError."""
        self._number += 1
        self._slots.begin(self._slot, self._number, limit_s, text)

    def restart(self, limit_s: float) -> None:
        """Restart the clock of this process's recorded call, with a new time limit."""
        self._slots.restart(self._slot, self._number, limit_s)

    def end(self) -> bool:
        """Mark the call as returned; returns whether the process's other steps were handed back."""
        return self._slots.end(self._slot)
