"""Memory shared by a worker and its pool processes: which of them is in an inline call, and which.

An inline call runs a user's function in a pool process. The function may hold the interpreter, so
that no thread of that process runs. The worker's main process watches the call from outside, with
what the pool process wrote here before it began.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

from celery.utils.log import current_process_index  # type: ignore[attr-defined]  # not in its stubs

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
