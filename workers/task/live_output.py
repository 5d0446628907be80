"""Keeps the output of a running body in bounded memory until it is published."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple

from workers.task.excerpt import redacted_start
from workers.task.live_redaction import LineRedactor, shortened

#: stdout and stderr of a process, or `agent`: texts and tool calls parsed from an agent's output.
Stream = Literal["stdout", "stderr", "agent"]

#: Bytes that wait to be redacted. What comes faster than it is published is dropped unread.
WAITING_BYTES = 24 * 1024
#: Bytes of one publication.
CHUNK_BYTES = 8 * 1024


class Part(NamedTuple):
    """One piece of output, redacted."""

    #: Counts the parts of one attempt, in the order in which they were read.
    seq: int
    stream: Stream
    text: str
    #: Bytes that were dropped just before it.
    dropped: int


class _Loss:
    """The dropped bytes of one stream since it was published last."""

    def __init__(self) -> None:
        self.bytes = 0
        #: Shortened.
        self.text = ""

    def add(self, chunk: bytes) -> None:
        self.bytes += len(chunk)
        self.text = shortened(self.text + chunk.decode("latin-1"))


class LiveOutput:
    """The output of one attempt: `write` costs next to nothing, `take` redacts what is published.

    One thread writes (the one that reads the body's pipes), another takes.
    """

    def __init__(self, opened: Callable[[LiveOutput], None] = lambda _: None) -> None:
        self._opened = opened
        #: The values that must not be shown; asked for when the first output is published.
        self.secrets: Callable[[], AbstractSet[str]] = frozenset
        self._lock = threading.Lock()
        self._waiting: deque[tuple[Stream, bytes]] = deque()
        self._size = 0
        self._lost: dict[Stream, _Loss] = {}
        self._redactors: dict[Stream, LineRedactor] = {}
        self._seq = 0
        self._unsent: dict[Stream, int] = {}
        self._is_open = False
        #: Set once the body has ended: what comes next is the last.
        self.ended = False

    def write(self, stream: Stream, chunk: bytes) -> None:
        """Buffer a chunk of output; if the buffer is full, the oldest chunk is dropped."""
        with self._lock:
            self._waiting.append((stream, chunk))
            self._size += len(chunk)
            while self._size > WAITING_BYTES:
                self._drop(self._size - WAITING_BYTES)
        if not self._is_open:
            self._is_open = True
            self._opened(self)

    def write_text(self, text: str) -> None:
        """Buffer a text as a line of the `agent` output stream."""
        self.write("agent", f"{text}\n".encode(errors="replace"))

    def write_line(self, head: str, text: str, *, limit: int) -> None:
        """Buffer a line of the `agent` output stream: a head and a text's redacted start."""
        start = " ".join(redacted_start(text, limit, self.secrets()).split())
        self.write_text(f"{head}{start}{' ...' if len(text) > limit else ''}")

    def end(self) -> None:
        """Mark the output as ended, so that the next `take` completes unfinished lines."""
        self.ended = True

    def take(self, now: float) -> list[Part]:
        """Remove the buffered output and return it redacted, in parts; if too long, the newest."""
        final = self.ended
        with self._lock:
            waiting, self._waiting, self._size = self._waiting, deque(), 0
            lost, self._lost = self._lost, {}
        for stream, loss in lost.items():
            dropped = loss.bytes + self._redactor(stream).lose(loss.text)
            self._unsent[stream] = self._unsent.get(stream, 0) + dropped
        texts = [(s, self._redactor(s).feed(chunk, now=now)) for s, chunk in _neighbours(waiting)]
        for stream, redactor in self._redactors.items():
            texts.append((stream, redactor.feed(b"", now=now, final=final)))
            self._unsent[stream] = self._unsent.get(stream, 0) + redactor.take_skipped()
        return list(self._parts(_joined(texts)))

    def put_back(self, parts: list[Part]) -> None:
        """Count parts that could not be published as dropped; does not buffer them again."""
        for part in parts:
            missing = part.dropped + len(part.text.encode(errors="replace"))
            self._unsent[part.stream] = self._unsent.get(part.stream, 0) + missing

    def _drop(self, excess: int) -> None:
        """Drop so many of the oldest bytes, or the whole of the oldest read."""
        stream, oldest = self._waiting.popleft()
        lost, kept = oldest[:excess], oldest[excess:]
        self._lost.setdefault(stream, _Loss()).add(lost)
        self._size -= len(lost)
        if kept:
            self._waiting.appendleft((stream, kept))

    def _redactor(self, stream: Stream) -> LineRedactor:
        if stream not in self._redactors:
            self._redactors[stream] = LineRedactor(self.secrets())
        return self._redactors[stream]

    def _parts(self, texts: Iterator[tuple[Stream, str]]) -> Iterator[Part]:
        room = CHUNK_BYTES
        pending = list(texts)
        # The newest are worth most to who watches: what has no room is dropped from the oldest.
        kept: deque[tuple[Stream, str]] = deque()
        for stream, text in reversed(pending):
            raw = text.encode(errors="replace")
            fits = raw[-room:].decode(errors="ignore") if room > 0 else ""
            missing = len(raw) - len(fits.encode(errors="replace"))
            if missing:
                self._unsent[stream] = self._unsent.get(stream, 0) + missing
            if fits:
                kept.appendleft((stream, fits))
            room -= len(raw)
        for stream, text in kept:
            self._seq += 1
            yield Part(self._seq, stream, text, self._unsent.pop(stream, 0))
        if self.ended:  # no later part will say what is missing
            for stream in [one for one, dropped in self._unsent.items() if dropped]:
                self._seq += 1
                yield Part(self._seq, stream, "", self._unsent.pop(stream))


def _neighbours(waiting: Iterable[tuple[Stream, bytes]]) -> Iterator[tuple[Stream, bytes]]:
    """Reads of one stream that follow each other, as one: each is redacted at a cost."""
    for stream, group in groupby(waiting, key=itemgetter(0)):
        yield stream, b"".join(chunk for _, chunk in group)


def _joined(texts: list[tuple[Stream, str]]) -> Iterator[tuple[Stream, str]]:
    """The texts without empty ones; neighbours of one stream in one."""
    joined: list[tuple[Stream, str]] = []
    for stream, text in texts:
        if not text:
            continue
        if joined and joined[-1][0] == stream:
            joined[-1] = (stream, joined[-1][1] + text)
        else:
            joined.append((stream, text))
    return iter(joined)
