"""Truncates long texts: in the middle, or to their last lines.

A text is rendered first, so that what is left of it is no progress bar.
"""

from __future__ import annotations

from leadhand.models.text import render_terminal


def cut(text: str, limit: int) -> str:
    """Shortens a text to at most `limit` characters and notes how many were left out.

    >>> cut("short", 100)
    'short'
    >>> print(cut("a" * 50 + "b" * 50, 60))
    aaaaaaaaaaaa
    [... 75 characters left out ...]
    bbbbbbbbbbbbb
    """
    text = render_terminal(text)
    if len(text) <= limit:
        return text
    mark = f"\n[... {len(text)} characters left out ...]\n"
    room = limit - len(mark)
    if room <= 0:
        return text[:limit]
    head, tail = room // 2, room - room // 2
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[-tail:]}"


def last_lines(text: str, limit: int) -> str:
    r"""Shortens a text to its last lines that fit, which usually contain the error.

    >>> last_lines("Traceback:\n  File x\nValueError: no", 20)
    '…\nValueError: no'
    >>> last_lines("one line that is long", 9)
    'one line…'
    """
    text = render_terminal(text).strip()
    if len(text) <= limit:
        return text
    start = text.find("\n", len(text) - limit + 1)
    if start < 0:
        last = text.rpartition("\n")[2]
        return last if len(last) <= limit else last[: limit - 1] + "…"
    return f"…{text[start:]}"
