"""Captures a command's output: its head and tail in memory, all of it in a file if it is long."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from workers.processes.own_folders import create_file

#: Bytes kept in memory from the start and from the end.
HEAD_BYTES = 32 * 1024
TAIL_BYTES = 32 * 1024
#: The most bytes of one output that a file keeps.
SPILL_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class Captured:
    """The output of a command on one of its streams."""

    text: str = ""
    size: int = 0
    #: The file with the full output, up to SPILL_BYTES, if the text is an excerpt.
    spill: Path | None = None

    def whole(self, limit: int) -> str:
        """Return the output as text; of output spilled to a file, the last `limit` bytes of all."""
        if self.spill is None:
            return self.text
        with self.spill.open("rb") as file:
            start = max(0, self.spill.stat().st_size - limit)
            file.seek(start)
            return _tail_text(file.read(limit)) if start else _text(file.read(limit))


class Capture:
    """Collects the chunks of a stream; creates the file only if the output is long."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._spilled = 0
        self._spill_failed = False
        self._head = bytearray()
        self._tail = bytearray()
        self._size = 0

    def write(self, chunk: bytes) -> None:
        """Add a chunk of output; memory keeps head and tail, a file all of it once it is long."""
        before = self._size
        self._size += len(chunk)
        if self._size > HEAD_BYTES + TAIL_BYTES:
            if before <= HEAD_BYTES + TAIL_BYTES:
                self._spill(bytes(self._head + self._tail))
            self._spill(chunk)
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 4 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def close(self) -> Captured:
        """Close the file and return what was captured."""
        if self._file is not None:
            self._file.close()
        if self._size <= HEAD_BYTES + TAIL_BYTES:
            return Captured(text=_text(bytes(self._head + self._tail)), size=self._size)
        left_out = self._size - HEAD_BYTES - TAIL_BYTES
        head, tail = bytes(self._head), bytes(self._tail[-TAIL_BYTES:])
        text = f"{_head_text(head)}\n[... {left_out} bytes left out ...]\n{_tail_text(tail)}"
        kept = None if self._spill_failed else self._path
        return Captured(text=text, size=self._size, spill=kept)

    def _spill(self, chunk: bytes) -> None:
        """Append to the file, up to SPILL_BYTES; an error loses the file and not the command."""
        if self._spill_failed or self._spilled >= SPILL_BYTES:
            return
        try:
            if self._file is None:
                self._file = create_file(self._path)
            self._file.write(chunk[: SPILL_BYTES - self._spilled])
        except OSError:
            self._spill_failed = True
        self._spilled += len(chunk)


def _text(raw: bytes) -> str:
    """Decode; replace invalid bytes, and NUL, which no process argument may contain."""
    return raw.decode(errors="replace").replace("\0", "\N{REPLACEMENT CHARACTER}")


def _head_text(raw: bytes) -> str:
    """Decode, without an incomplete character at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    return _text(decoder.decode(raw, final=False).encode())


def _tail_text(raw: bytes) -> str:
    """Decode, without an incomplete character at the start."""
    start = 0
    while start < min(3, len(raw)) and 0x80 <= raw[start] < 0xC0:
        start += 1
    return _text(raw[start:])
