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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

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
#: A call that takes longer than so many seconds is slow.
SOON_S = 0.02
#: A process that has idled for so many seconds is notified that it has no lease to keep.
REST_S = 1.0
#: Seconds between two checks whether a call must end.
_POLL_S = 0.05
#: Bytes read at once; a larger buffer is slow to allocate.
_CHUNK_BYTES = 64 * 1024
#: The most bytes of a reply: the result, and what the function printed, which JSON may escape.
_ANSWER_BYTES = runner.RESULT_BYTES + 16 * runner.PRINTED
End = Literal["timed_out", "cancelled", "gone"]
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
    #: The Python that runs them, by default this one.
    python: str = ""
    #: Where their modules are searched, as the runner takes it.
    search: str = "first"
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


class Warm:
    """The warm processes of one worker process."""

    def __init__(self) -> None:
        self._idle: list[_Process] = []
        self._lock = threading.Lock()
        #: Set when a process becomes idle whose launcher knows of a lease.
        self._leased = threading.Event()
        self._resting: threading.Thread | None = None

    def call(
        self,
        call: Call,
        *,
        timeout_s: float,
        cancel: threading.Event,
        on_slow: Callable[[], None] = lambda: None,
    ) -> CallReply:
        """Call a function in a warm process; return its reply, or why there is none.

        Raises OSError if no process can start. `on_slow` is called again and again while the call
        takes longer than SOON_S.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            process = self.idle(call.where) or _Process(call.where)
            try:
                answer = process.call(call, deadline, cancel, on_slow)
            except BaseException:
                process.end()
                raise
            self.put_back(process)
            if answer.word == "late":  # its lease had expired, so it was not called
                return CallReply(end="cancelled")
            if answer.word != "stale":
                return answer

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
        self._readable = select.poll()
        self._readable.register(self._link.socket, select.POLLIN)
        self._calls, self._until = 0, time.monotonic() + AGE_S
        self.lease = WarmLease(self._link.lifeline)
        #: When it was put back, on the monotonic clock.
        self.idle_since = 0.0

    def call(
        self, call: Call, deadline: float, cancel: threading.Event, on_slow: Callable[[], None]
    ) -> CallReply:
        """Call a function and read its reply; a process that gives none is not used again."""
        self.goes_on = False
        self._calls += 1
        self.lease.limit(call.until())
        with contextlib.suppress(OSError):
            self._link.socket.sendall(_line(call))
        answer = self._read(call, deadline, cancel, on_slow)
        if isinstance(answer, str):
            over = answer == "gone" and time.monotonic() >= self.lease.known
            return CallReply(end="cancelled" if over else answer)
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

    def _read(
        self, call: Call, deadline: float, cancel: threading.Event, on_slow: Callable[[], None]
    ) -> bytes | End:
        """Read one line, or return why there is none."""
        parts, wait_s = [b""], SOON_S
        while b"\n" not in parts[-1]:
            if cancel.is_set():
                return "cancelled"
            left = deadline - time.monotonic()
            # What has arrived in time counts, also if `on_slow` took longer.
            if self._readable.poll(max(0.0, min(wait_s, left)) * 1000):
                chunk = self._chunk()
                parts.append(chunk)
                if not chunk or sum(map(len, parts)) > _ANSWER_BYTES:
                    return "gone"
            elif left <= 0:
                return "timed_out"
            else:
                self.lease.limit(call.until(), exactly=True)
                on_slow()
                wait_s = _POLL_S
        return b"".join(parts)

    def _chunk(self) -> bytes:
        with contextlib.suppress(OSError):
            return self._link.socket.recv(_CHUNK_BYTES)
        return b""


def _line(call: Call) -> bytes:
    """The call as a JSON line; the reply is `late` if its lease has expired before it starts."""
    by = call.until()
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
