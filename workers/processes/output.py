"""Captures a command's output: its head and tail in memory, all of it in a file if it is long.

The text in memory is as a terminal shows it in the end, so that it is not full of progress bars.
The file has each byte.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from leadhand.models.text import render_terminal
from workers.processes.user_folders import create_file

#: Bytes kept in memory from the start and from the end.
HEAD_BYTES = 32 * 1024
TAIL_BYTES = 32 * 1024
#: The most bytes of one output that a file keeps.
SPILL_BYTES = 64 * 1024 * 1024
#: The most bytes of a line without an end that are held until they are rendered.
LINE_BYTES = 64 * 1024
#: The most bytes of a line; a longer one is skipped.
LINE_LIMIT = 1024 * 1024


@dataclass(frozen=True)
class Captured:
    """The output of a command on one of its streams."""

    text: str = ""
    size: int = 0
    #: The file with the full output, up to SPILL_BYTES, if that is long.
    spill: Path | None = None

    def whole(self, limit: int) -> str:
        """Return the output as text; of output spilled to a file, the last `limit` bytes of all."""
        if self.spill is None:
            return self.text
        with self.spill.open("rb") as file:
            start = max(0, self.spill.stat().st_size - limit)
            file.seek(start)
            found = _tail_text(file.read(limit)) if start else _text(file.read(limit))
            return render_terminal(found)


class Capture:
    """Collects the chunks of a stream; creates the file only if the output is long."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._spilled = 0
        self._spill_failed = False
        self._head = bytearray()
        self._tail = bytearray()
        #: Bytes of the stream, and those of them that are shown.
        self._size = 0
        self._shown = 0
        #: The stream as it came, until a file has it.
        self._raw = bytearray()
        self._line = bytearray()

    def write(self, chunk: bytes) -> None:
        """Add a chunk of output; memory keeps head and tail, a file all of it once it is long."""
        self._size += len(chunk)
        if self._size <= HEAD_BYTES + TAIL_BYTES:
            self._raw += chunk
        else:
            self._spill(bytes(self._raw) + chunk)
            self._raw.clear()
        self._line += chunk
        end = self._line.rfind(b"\n") + 1
        if not end and len(self._line) > LINE_BYTES:
            self._line = bytearray(_render(self._line))
            end = max(0, len(self._line) - LINE_BYTES)
        if end:
            self._show(_render(self._line[:end]))
            del self._line[:end]

    def _show(self, shown: bytes) -> None:
        self._shown += len(shown)
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += shown[:room]
            shown = shown[room:]
        self._tail += shown
        if len(self._tail) > 4 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def close(self) -> Captured:
        """Close the file and return what was captured."""
        self._show(_render(self._line))
        if self._file is not None:
            self._file.close()
        is_long = self._size > HEAD_BYTES + TAIL_BYTES
        kept = self._path if is_long and not self._spill_failed else None
        left_out = self._shown - HEAD_BYTES - TAIL_BYTES
        if left_out <= 0:
            text = _text(bytes(self._head + self._tail))
        else:
            head, tail = bytes(self._head), bytes(self._tail[-TAIL_BYTES:])
            text = f"{_head_text(head)}\n[... {left_out} bytes left out ...]\n{_tail_text(tail)}"
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


def _render(raw: bytearray) -> bytes:
    """The bytes as a terminal shows them in the end: all that it obeys is ASCII."""
    return render_terminal(raw.decode("latin-1")).encode("latin-1")


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


class Lines:
    """Calls `take` with each complete line, without its newline; `skip` with the size of others."""

    def __init__(
        self,
        take: Callable[[bytes], None],
        *,
        limit: int = LINE_LIMIT,
        skip: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._take = take
        self._skip = skip
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, chunk: bytes) -> None:
        r"""Buffer a chunk and pass each line that it completes to the receiver.

        >>> lines = Lines(print)
        >>> lines.write(b"one\ntw"), lines.write(b"o\n"), lines.close()
        b'one'
        b'two'
        (None, None, None)
        """
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            self._keep(part)
            self._hand_on()
        self._keep(rest)

    def close(self) -> None:
        """Pass the last line, which may lack a newline, to the receiver."""
        if self._size:
            self._hand_on()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _hand_on(self) -> None:
        line, size = b"".join(self._parts), self._size
        self._parts.clear()
        self._size = 0
        if size <= self._limit:
            self._take(line)
        else:
            self._skip(size)
