"""Long texts cut to what a reader can take in: the beginning and the end stay, the middle goes."""

from __future__ import annotations


def cut(text: str, limit: int) -> str:
    """At most `limit` characters of a text, saying how many were left out.

    >>> cut("short", 100)
    'short'
    >>> print(cut("a" * 50 + "b" * 50, 60))
    aaaaaaaaaaaa
    [... 75 characters left out ...]
    bbbbbbbbbbbbb
    """
    if len(text) <= limit:
        return text
    mark = f"\n[... {len(text)} characters left out ...]\n"
    room = limit - len(mark)
    if room <= 0:
        return text[:limit]
    head, tail = room // 2, room - room // 2
    left_out = len(text) - head - tail
    return f"{text[:head]}\n[... {left_out} characters left out ...]\n{text[-tail:]}"
