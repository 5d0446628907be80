"""Recognises the end of a private key in PEM whose first line is missing.

Of a long output the middle is left out. If a key's first line is in it, the text after the gap
begins with the rest of the key: lines in base64, then `-----END PRIVATE KEY-----`.
"""

from __future__ import annotations

import re

from app.prefixed_keys import KEY_BEGINS, ends_with_key_line, prefix_pattern
from leadhand.models.secret_forms import LINE_PREFIX, MARK

_END = re.compile(r"-----END (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
#: Between two lines of a key: a line end, also as JSON escapes it.
_BREAK = re.compile(r"[\r\n]+|(?:\\{1,4}[rn])+")
#: Between two lines of a key that were joined into one line.
_SPACE = re.compile(r"\s+|(?:\\{1,4}[rn])+")
#: The last lines of a key, joined into one line, and where they are looked for.
_WORDS = re.compile(r"[A-Za-z0-9+/]{16,}+={0,2}[ \t]+(?:=?[A-Za-z0-9+/]{1,15}={0,2}[ \t]+){0,2}\Z")
_WORDS_LIMIT = 200
_PREFIX = re.compile(LINE_PREFIX)
_LONG = re.compile(r"[A-Za-z0-9+/]{16,}={0,2}")
#: The last line, a checksum, or the rest of the line in which the gap ends.
_SHORT = re.compile(r"=?[A-Za-z0-9+/]{0,15}={0,2}")
#: A header such as `DEK-Info: AES-128-CBC,00FF`, or the empty line after it.
_HEADER = re.compile(r"(?:[A-Za-z][A-Za-z-]{0,30}:\s.{0,200})?")
#: The most characters of a key's headers.
_HEADERS_LIMIT = 2_500
#: The last line of a key, and its checksum, are shorter than the others.
_ENDS = 2
#: The line before the rest of a text, or its last word.
_GAP = re.compile(r"(?:\[\.\.\. \d+ \w+ left out )?\.\.\.\]\s*|…\s*")


def without_cut_keys(text: str) -> str:
    r"""Redacts, in a text, what is left of private keys whose first line was cut off.

    >>> without_cut_keys("...]\nab3/MIIEowIBAAKCAQEA\n-----END PRIVATE KEY-----")
    '...]\n[redacted]'
    """
    if "PRIVATE KEY" not in text or "-----END " not in text:
        return text
    clean, end = [], 0
    for found in _END.finditer(text):
        start = _start_of_key(text[end : found.start()], is_start=end == 0)
        if start is not None:
            clean += [text[end : end + start], MARK]
            end = found.end()
            continue
        clean.append(text[end : found.end()])
        end = found.end()
    return "".join([*clean, text[end:]])


def _start_of_key(before: str, *, is_start: bool) -> int | None:
    """Where the key begins whose last line follows `before`; None if it is not cut, or no key."""
    pieces = _pieces(before)
    prefix = prefix_pattern(pieces.pop()[1])
    start, is_found = len(before), False
    for number in range(len(pieces) - 1, -1, -1):
        offset, piece = pieces[number]
        is_after_gap = number > 0 and _GAP.fullmatch(pieces[number - 1][1]) is not None
        skipped = _prefix_length(piece, prefix)
        line = piece[skipped:].strip()
        may_be_short = is_after_gap or number >= len(pieces) - _ENDS or (is_start and number == 0)
        if _LONG.fullmatch(line):
            start, is_found = offset + skipped, True
        elif may_be_short and _SHORT.fullmatch(line):
            start = offset + skipped if line else start
            is_found = is_found or (is_after_gap and bool(line))
        elif is_after_gap and ends_with_key_line(piece):  # the gap ends within the prefix
            start, is_found = offset, True
        else:
            break
    return start if is_found and not _follows_begin(before, start) else None


def _pieces(before: str) -> list[tuple[int, str]]:
    """The lines of a text, each with its offset; its words if it ends within a line of a key."""
    last = before[max(0, len(before) - _WORDS_LIMIT) :].rpartition("\n")[2]
    breaks = _SPACE if _WORDS.search(last) is not None else _BREAK
    pieces, start = [], 0
    for found in breaks.finditer(before):
        pieces.append((start, before[start : found.start()]))
        start = found.end()
    return [*pieces, (start, before[start:])]


def _prefix_length(piece: str, prefix: re.Pattern[str] | None) -> int:
    """The length of what is before the line of the key, such as a log's time or a number."""
    found = prefix.match(piece) if prefix is not None else None
    found = found or _PREFIX.match(piece)
    return found.end() if found is not None else 0


def _follows_begin(before: str, start: int) -> bool:
    """Whether the first line of the key is directly before it, or before the key's headers."""
    window = before[max(0, start - _HEADERS_LIMIT) : start]
    begins = list(KEY_BEGINS.finditer(window))
    if not begins:
        return False
    between = _BREAK.split(window[begins[-1].end() :])
    return all(_HEADER.fullmatch(line[_prefix_length(line, None) :].strip()) for line in between)
