"""Cuts what comes from a pipe into lines, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable

#: Bytes of one line; a longer one is passed over.
LINE_BYTES = 8 * 1024 * 1024


class Lines:
    """Hands each whole line on, without its end."""

    def __init__(self, take: Callable[[bytes], None], *, limit: int = LINE_BYTES) -> None:
        self._take = take
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, chunk: bytes) -> None:
        r"""Take what came next.

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
        """The last line may lack its end."""
        if self._size:
            self._hand_on()

    def _keep(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._limit:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _hand_on(self) -> None:
        line, whole = b"".join(self._parts), self._size <= self._limit
        self._parts.clear()
        self._size = 0
        if whole:
            self._take(line)
