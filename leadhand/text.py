"""Text from outside, made fit for a line of a terminal. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

#: Control characters, and those that turn the direction of writing.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069]+",
)


def plain(value: object, *, most: int = 160) -> str:
    r"""One line, bounded, without control characters.

    >>> plain("\x1b[31mred\x1b[0m\nand  more", most=14)
    '[31mred [0m a…'
    """
    text = " ".join(_UNPRINTABLE.sub(" ", str(value)).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def reason_text(reason: object) -> str:
    """A reason as it travels, on one line: what it says, down to its root cause.

    >>> reason_text({"code": "failed_step", "text": "do failed", "beneath": {"code": "lost"}})
    'do failed: lost'
    """
    links = []
    while isinstance(reason, Mapping):
        links.append(plain(reason.get("text") or reason.get("code") or ""))
        reason = reason.get("beneath")
    if isinstance(reason, str):
        links.append(plain(reason))
    return ": ".join(dict.fromkeys(link for link in links if link))


def block(text: str, *, indent: str = "") -> Iterator[str]:
    """Several lines, each without control characters."""
    for line in text.splitlines():
        yield f"{indent}{_UNPRINTABLE.sub(' ', line)}".rstrip()
