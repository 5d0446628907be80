"""Redacts a stream of output line by line, so that people can watch it while a body runs.

A secret must not slip through because two reads or two publications cut it in two. So text is
published in whole lines; the rest of a line waits. A line that is too long or too old is cut where
no credential can be cut: at least the length of the longest secret before its end, and only where
both halves redacted apart equal the whole redacted at once.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Set as AbstractSet

from app.redaction import without_keys
from leadhand.models.secret_forms import KEY_BEGINS, KEY_ENDS, MARK, escaped_forms

#: Characters of an unfinished line that wait for its end, and for how long they wait.
LINE_CHARACTERS = 4 * 1024
LINE_AGE_S = 1.0
#: Characters at the end of an unfinished line that are never published; longer secrets widen it.
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


def shortened(text: str) -> str:
    """Shortens text that is left out to what says whether a key is open after it."""
    if len(text) <= 4 * _EDGE:
        return text
    return "\n".join([text[:_EDGE], *_KEY_LINE.findall(text)[-1:], text[-_EDGE:]])


class LineRedactor:
    """Turns the bytes of one output into redacted text, in whole lines where possible."""

    def __init__(self, secrets: AbstractSet[str] = frozenset()) -> None:
        # Output comes line by line, so each line of a secret is one.
        lines = {line for secret in secrets for line in secret.splitlines()}
        self._secrets = secrets | {line for line in lines if len(line) >= SHORTEST}
        self._overlap = max([OVERLAP, *(len(escaped_forms(one)[0]) for one in secrets)])
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
