"""Recognises private keys in PEM whose lines have something before them, such as a log's time.

A log writes the same text before each line, but for its numbers. So the text before `-----BEGIN` is
a pattern for the text before the lines that follow.
"""

from __future__ import annotations

import re

from leadhand.models.secret_forms import MARK

KEY_BEGINS = re.compile(r"-----BEGIN (?:[A-Z0-9]{1,20} ){0,3}PRIVATE KEY(?: BLOCK)?-----")
#: The end of a key, and the rest of its line.
KEY_ENDS = re.compile(r"-----END[A-Z0-9 ]{0,60}-----[^\n]*\n?")
#: A longer prefix is not one of a log; nothing is done about it.
_PREFIX_LIMIT = 300
#: A line of a key by its length, a shorter one, and a header such as `DEK-Info: AES-128-CBC,00`.
_LONG = re.compile(r"\s*[A-Za-z0-9+/]{16,}={0,2}\s*")
_SHORT = re.compile(r"\s*=?[A-Za-z0-9+/]{0,15}={0,2}\s*")
_HEADER = re.compile(r"\s*(?:[A-Za-z][A-Za-z-]{0,30}:\s.{0,200})?\s*")
_NUMBER_OR_SPACE = re.compile(r"\d+|\s+")
#: A line that ends with a line of a key, whatever is before it.
_ENDS_WITH_LONG = re.compile(r".{0,300}?(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{16,}={0,2}\s*")


def prefix_pattern(prefix: str) -> re.Pattern[str] | None:
    """Compiles a pattern that matches a line prefix with other numbers; None if it is too long.

    >>> bool(prefix_pattern("09:59:59.9 api[12]: ").match("10:00:00.123 api[12]: MIIE"))
    True
    """
    if not prefix.strip() or len(prefix) > _PREFIX_LIMIT:
        return None
    parts, end = [], 0
    for found in _NUMBER_OR_SPACE.finditer(prefix):
        parts.append(re.escape(prefix[end : found.start()]))
        parts.append(r"\d{1,20}" if found[0][0].isdigit() else r"\s{0,20}")
        end = found.end()
    return re.compile("".join([*parts, re.escape(prefix[end:])]))


def ends_with_key_line(line: str) -> bool:
    """Whether a line ends with what looks like a line of a private key, behind any prefix.

    >>> ends_with_key_line("10:00 INFO MIIEowIBAAKCAQEA7b1"), ends_with_key_line("10:00 done")
    (True, False)
    """
    return _ENDS_WITH_LONG.fullmatch(line) is not None


def without_prefixed_keys(text: str) -> str:
    """Redacts private keys whose lines have a prefix, such as line numbers or `> `."""
    clean, end = [], 0
    for begin in KEY_BEGINS.finditer(text):
        if begin.start() < end:
            continue
        # A bounded search, so that a long line with many keys takes linear time.
        first = max(end, begin.start() - _PREFIX_LIMIT - 1)
        start = text.rfind("\n", first, begin.start()) + 1
        pattern = prefix_pattern(text[max(start, first) : begin.start()])
        key_end = _end_of_key(text, begin.end(), pattern) if pattern is not None else None
        if key_end is not None:
            clean += [text[end : begin.start()], MARK]
            end = key_end
    return "".join([*clean, text[end:]])


def _end_of_key(text: str, start: int, pattern: re.Pattern[str]) -> int | None:
    """Where the last line of the key ends; None if no line with this prefix is one of a key."""
    # The first line may end with what a log adds: only white space is expected there.
    end, position, is_found = start, text.find("\n", start) + 1, False
    if position == 0 or text[start : position - 1].strip():
        return None
    while position < len(text):
        line_end = text.find("\n", position)
        line_end = len(text) if line_end < 0 else line_end
        prefix = pattern.match(text, position, line_end)
        if prefix is None:
            return end if is_found else None
        rest = text[prefix.end() : line_end]
        last = KEY_ENDS.match(rest.lstrip())
        if last is not None:
            return line_end if is_found else None
        if _LONG.fullmatch(rest):
            end, is_found = line_end, True
        elif is_found and _SHORT.fullmatch(rest):
            end = line_end  # the last line of the key, or its checksum
        elif is_found or not _HEADER.fullmatch(rest):
            return end if is_found else None
        position = line_end + 1
    return end if is_found else None
