"""Finds where an HTTP/1.1 request ends in the bytes received so far (pure)."""

from __future__ import annotations

import re
from enum import Enum

#: The longest head (request line and headers) that is collected.
MAX_HEAD_BYTES = 64 * 1024
#: The longest line with the size of a chunk.
_MAX_SIZE_LINE = 4096
#: The longest trailer section behind the last chunk.
_MAX_TRAILERS = 16 * 1024
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"(?im)^content-length:[ \t]*([^\r\n]*?)[ \t]*\r?$")
_CODING = re.compile(rb"(?im)^transfer-encoding:[ \t]*([^\r\n]*?)[ \t]*\r?$")
_EXPECT = re.compile(rb"(?im)^expect:[ \t]*100-continue[ \t]*\r?$")
_SIZE = re.compile(rb"[0-9a-fA-F]{1,16}")


class Stage(Enum):
    """How much of a request has been received."""

    #: The head is incomplete.
    HEAD = "head"
    #: The head is complete, the body is not.
    BODY = "body"
    #: The whole request is here.
    WHOLE = "whole"
    #: No more is read: the application refuses the request.
    REFUSABLE = "refusable"
    #: The head is longer than MAX_HEAD_BYTES.
    HEAD_TOO_LONG = "head too long"
    #: The chunks of the body take more room than a body may.
    BODY_TOO_LONG = "body too long"


class Frame:
    r"""The received bytes of one request; each byte is examined once.

    >>> frame = Frame(max_body=100)
    >>> frame.add(b"GET / HTTP/1.1\r\n"), frame.add(b"\r\n")
    (<Stage.HEAD: 'head'>, <Stage.WHOLE: 'whole'>)
    """

    def __init__(self, *, max_body: int) -> None:
        self.received = bytearray()
        self.stage = Stage.HEAD
        self._max_body = max_body
        self._searched = 0
        self._body_at = 0
        self._body: _Length | _Chunks | None = None

    def add(self, received: bytes) -> Stage:
        """Add received bytes; return how far the request is: head, body or complete."""
        self.received += received
        if self.stage is Stage.HEAD:
            self.stage = self._after_head()
        if self.stage is Stage.BODY and self._body is not None:
            self.stage = self._body.stage(self.received)
        return self.stage

    @property
    def target(self) -> bytes:
        """Return the path in the request line, without its query; empty if there is none."""
        words = bytes(self.received[: self.received.find(b"\r\n")]).split(b" ")
        return words[1].split(b"?")[0] if len(words) == 3 else b""

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends the body."""
        return bool(_EXPECT.search(bytes(self.received[: self._body_at])))

    def _after_head(self) -> Stage:
        end = self.received.find(_END, self._searched)
        if end < 0:
            # The last three bytes may begin the end that the next ones complete.
            self._searched = max(0, len(self.received) - 3)
            too_long = len(self.received) > MAX_HEAD_BYTES
            return Stage.HEAD_TOO_LONG if too_long else Stage.HEAD
        self._body_at = end + len(_END)
        if self._body_at > MAX_HEAD_BYTES:
            return Stage.HEAD_TOO_LONG
        return self._framing(bytes(self.received[: end + 2]))

    def _framing(self, head: bytes) -> Stage:
        """Determine how the body is delimited; gunicorn refuses ambiguous requests."""
        lengths, codings = _LENGTH.findall(head), _CODING.findall(head)
        if not lengths and not codings:
            return Stage.WHOLE
        if codings:
            if lengths or [one.lower() for one in codings] != [b"chunked"]:
                return Stage.REFUSABLE
            self._body = _Chunks(self._body_at, self._max_body)
            return Stage.BODY
        if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
            return Stage.REFUSABLE
        if int(lengths[0]) > self._max_body:
            return Stage.REFUSABLE
        self._body = _Length(self._body_at + int(lengths[0]))
        return Stage.BODY


class _Length:
    """A body whose length the head names."""

    def __init__(self, end: int) -> None:
        self._end = end

    def stage(self, received: bytearray) -> Stage:
        return Stage.WHOLE if len(received) >= self._end else Stage.BODY


class _Chunks:
    """A body in chunks: size line, bytes, and so on until a chunk of size 0 and the trailers."""

    def __init__(self, at: int, max_body: int) -> None:
        self._begin = at
        #: Where the next size line begins; behind the last chunk, where the trailers begin.
        self._at = at
        self._in_trailers = False
        self._decoded = 0
        self._max_body = max_body
        self._searched = at

    def stage(self, received: bytearray) -> Stage:
        while not self._in_trailers:
            stage = self._next_chunk(received)
            if stage is not None:
                return stage
        return self._trailers(received)

    def _next_chunk(self, received: bytearray) -> Stage | None:
        """Step over one chunk; returns a stage where that is not possible."""
        if self._at > len(received):
            # Within a chunk or its CRLF. Once more than the longest body is here, the application
            # can see that and refuses it.
            missing = max(0, self._at - len(b"\r\n") - len(received))
            too_long = self._decoded - missing > self._max_body
            return Stage.REFUSABLE if too_long else self._bounded(received)
        if self._decoded > self._max_body:
            return Stage.REFUSABLE
        end = received.find(b"\r\n", self._searched)
        if end < 0:
            self._searched = max(self._at, len(received) - 1)
            malformed = len(received) - self._at > _MAX_SIZE_LINE
            return Stage.REFUSABLE if malformed else self._bounded(received)
        size = bytes(received[self._at : end]).split(b";")[0].rstrip(b" \t")
        if not _SIZE.fullmatch(size):
            return Stage.REFUSABLE
        self._step(end + 2, int(size, 16))
        return None

    def _step(self, begin: int, size: int) -> None:
        self._in_trailers = size == 0
        self._decoded += size
        self._at = self._searched = begin + (size + 2 if size else 0)

    def _bounded(self, received: bytearray) -> Stage:
        """Chunks of a few bytes each may take twice the room of their body, and no more."""
        raw = len(received) - self._begin
        return Stage.BODY_TOO_LONG if raw > 2 * self._max_body + _MAX_SIZE_LINE else Stage.BODY

    def _trailers(self, received: bytearray) -> Stage:
        if received[self._at : self._at + 2] == b"\r\n":
            return Stage.WHOLE
        end = received.find(_END, self._searched)
        if end >= 0:
            return Stage.WHOLE
        self._searched = max(self._at, len(received) - 3)
        return Stage.REFUSABLE if len(received) - self._at > _MAX_TRAILERS else Stage.BODY
