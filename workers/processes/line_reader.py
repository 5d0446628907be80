"""Splits a stream of bytes into lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

#: The most bytes of a line; a longer one is skipped.
LINE_BYTES = 1024 * 1024


class Lines:
    """Calls `take` with each complete line, without its newline; `skip` with the size of others."""

    def __init__(
        self,
        take: Callable[[bytes], None],
        *,
        limit: int = LINE_BYTES,
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
