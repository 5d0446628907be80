"""Standard streams that escape control characters, so that no text can control the terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from leadhand.models.text import escape_controls


class EscapingStream(io.TextIOWrapper):
    """Writes control characters as escapes."""

    def __init__(self, raw: io.TextIOWrapper) -> None:
        #: The stream for output with control characters of its own, such as a live view.
        self.raw = raw
        #: A carriage return that may be the first half of a line ending.
        self._held = ""
        super().__init__(
            raw.buffer,
            encoding=raw.encoding,
            errors="replace",  # a character that the terminal lacks is not an error
            line_buffering=raw.line_buffering,
            write_through=raw.write_through,
        )

    def write(self, text: str, /) -> int:
        """Write text with control characters escaped; holds back a final carriage return."""
        whole = self._held + text
        self._held = "\r" if whole.endswith("\r") else ""
        super().write(escape_controls(whole.removesuffix("\r")))
        return len(text)

    def flush(self) -> None:
        """Write everything that is buffered, including a held carriage return."""
        held, self._held = self._held, ""
        if held:
            super().write(escape_controls(held))
        super().flush()


def raw(stream: TextIO) -> TextIO:
    """Returns the stream below an escaping one, which it flushes; any other stream itself."""
    if isinstance(stream, EscapingStream):
        stream.flush()
        return stream.raw
    return stream


@contextmanager
def escaped_streams() -> Iterator[None]:
    """Within its `with` block, escapes control characters written to standard output and error."""
    before = sys.stdout, sys.stderr
    ours = [EscapingStream(one) for one in before if isinstance(one, io.TextIOWrapper)]
    by_raw: dict[TextIO, TextIO] = {one.raw: one for one in ours}
    sys.stdout, sys.stderr = (by_raw.get(one, one) for one in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for one in ours:
            try:
                one.flush()
            except BrokenPipeError:
                discard_buffer(one)
            one.detach()


def discard_buffer(stream: TextIO) -> None:
    """Redirects a stream to /dev/null, so that its buffer for a closed pipe is discarded.

    Otherwise the interpreter tries to write it once more at exit, and reports that it cannot.
    """
    target = os.open(os.devnull, os.O_WRONLY)
    os.dup2(target, stream.fileno())
    os.close(target)
