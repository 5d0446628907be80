"""Keeps the output of a running body in bounded memory until it is published.

A secret must not slip through because two reads or two publications cut it in two. So text is
published in whole lines; the rest of a line waits. A line that is too long or too old is cut where
no credential can be cut: at least the length of the longest secret before its end, and only where
both halves redacted apart equal the whole redacted at once.
"""

from __future__ import annotations

import codecs
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple

from app.redaction import without_keys
from leadhand.models.secret_forms import KEY_BEGINS, KEY_ENDS, MARK, escaped_forms

#: Characters of an unfinished line that wait for its end, and for how long they wait.
LINE_CHARACTERS = 4 * 1024
LINE_AGE_S = 1.0
#: Characters before a cut, or at the end of an unfinished line, that are never shown. Longer
#: secrets widen it.
OVERLAP = 128
#: A shorter line of a secret is no secret by itself.
SHORTEST = 8
#: Places in a line at which a cut is tried; each try redacts the whole line.
CUTS = 4
#: Characters of one line that are searched for a place to cut; a longer one is left out.
LINE_LIMIT = 16 * 1024
#: The first or the last line of a key, and more characters than one has.
_KEY_LINE = re.compile(f"{KEY_BEGINS.pattern}|{KEY_ENDS.pattern}")
_EDGE = 128
#: Characters of a text that are redacted before it is shortened.
READ_CHARACTERS = 2_000
#: stdout and stderr of a process, or `agent`: texts and tool calls parsed from an agent's output.
Stream = Literal["stdout", "stderr", "agent"]
#: Bytes that wait to be redacted. What comes faster than it is published is dropped unread.
WAITING_BYTES = 24 * 1024
#: Bytes of one publication.
CHUNK_BYTES = 8 * 1024


def shortened(text: str) -> str:
    """Shortens text that is left out to what says whether a key is open after it."""
    if len(text) <= 4 * _EDGE:
        return text
    return "\n".join([text[:_EDGE], *_KEY_LINE.findall(text)[-1:], text[-_EDGE:]])


def _overlap(secrets: AbstractSet[str]) -> int:
    return max([OVERLAP, *(len(escaped_forms(one)[0]) for one in secrets)])


class LineRedactor:
    """Turns the bytes of one output into redacted text, in whole lines where possible."""

    def __init__(self, secrets: AbstractSet[str] = frozenset()) -> None:
        # Output comes line by line, so each line of a secret is one.
        lines = {line for secret in secrets for line in secret.splitlines()}
        self._secrets = secrets | {line for line in lines if len(line) >= SHORTEST}
        self._overlap = _overlap(secrets)
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._text = ""
        self._since = 0.0
        self._in_key = False
        self._skips_line = False
        #: What is left out of the line that is skipped, shortened.
        self._left_out = ""
        self._skipped = 0

    def feed(self, chunk: bytes, *, now: float, final: bool = False) -> str:
        """Take the next chunk of output; return the redacted text that can be published now.

        `now` is in seconds on any clock that does not step back. `final` ends the last line.
        """
        if not self._text:
            self._since = now
        self._text += self._decoder.decode(chunk, final)
        if self._skips_line:
            self._skip_line()
        published = self._whole_lines(final=final)
        if published:
            self._since = now
        if len(self._text) > LINE_CHARACTERS or now - self._since > LINE_AGE_S:
            published += self._part_of_line()
            self._since = now
        return published

    def lose(self, lost: str) -> int:
        """Record a gap in the output; drop the waiting text, return its length, and skip the line.

        `lost`: the text of the gap, `shortened`.
        """
        waited = len(self._text)
        self._leave_out(self._text + lost)
        self._text = ""
        self._decoder.reset()
        return waited

    def take_skipped(self) -> int:
        """Return how many characters were left out since the last call."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    def _skip_line(self) -> None:
        skipped, end, rest = self._text.partition("\n")
        self._text = rest
        self._skipped += len(skipped) + len(end)
        self._leave_out(skipped)
        if end:
            self._skips_line, self._left_out = False, ""

    def _leave_out(self, text: str) -> None:
        """Skip the line that text ends which is not published; a key may begin or end in it."""
        self._skips_line = True
        self._left_out = shortened(self._left_out + text)
        if lines := _KEY_LINE.findall(self._left_out):
            self._in_key = KEY_BEGINS.match(lines[-1]) is not None

    def _whole_lines(self, *, final: bool) -> str:
        end = len(self._text) if final else self._text.rfind("\n") + 1
        if end == 0:
            return ""
        lines, self._text = self._text[:end], self._text[end:]
        return self._without_keys_in_pem(lines)

    def _without_keys_in_pem(self, lines: str) -> str:
        """The lines without private keys, including one that continues in the next lines."""
        clean = ""
        while True:
            if self._in_key:
                end = KEY_ENDS.search(lines)
                if end is None:
                    return clean
                self._in_key, lines = False, lines[end.end() :]
            begin = KEY_BEGINS.search(lines)
            if begin is None:
                return clean + without_keys(lines, self._secrets)
            clean += without_keys(lines[: begin.start()], self._secrets) + MARK
            self._in_key, lines = True, lines[begin.end() :]

    def _part_of_line(self) -> str:
        """The beginning of an unfinished line, cut where no secret can be."""
        if self._in_key or KEY_BEGINS.search(self._text):
            return self._overlong()
        whole = without_keys(self._text, self._secrets)
        cut = len(self._text) - self._overlap
        for _ in range(CUTS):
            if cut <= 0:
                break
            head, tail = self._text[:cut], self._text[cut:]
            published = without_keys(head, self._secrets)
            if published + without_keys(tail, self._secrets) == whole:
                self._text = tail
                return published
            cut -= self._overlap
        return self._overlong()

    def _overlong(self) -> str:
        """Leave out a line that cannot be cut and is too long to wait for its end."""
        if len(self._text) <= LINE_LIMIT:
            return ""
        left_out = len(self._text)
        self._leave_out(self._text)
        self._text = ""
        return f"[{left_out} characters of one line left out]\n"


def redacted_start(text: str, limit: int, secrets: AbstractSet[str] = frozenset()) -> str:
    """Returns the first `limit` characters of a text after redaction.

    >>> redacted_start("x" * 1_995 + "hush-hush-hush", 5_000, {"hush-hush-hush"})[-3:]
    'xxx'
    """
    clean = without_keys(text[:READ_CHARACTERS], secrets)
    if len(text) > READ_CHARACTERS:
        clean = clean[: -_overlap(secrets)]
    return clean[:limit]


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
