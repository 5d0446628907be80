"""Text from outside, made fit for a line of a terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

#: Characters of one reason: what an agent said may stand in it, and what to do about that.
_REASON = 400


def plain(value: object, *, most: int = 160) -> str:
    r"""One line, bounded, without control characters.

    >>> plain("\x1b[31mred\x1b[0m\nand  more", most=14)
    '[31mred [0m a…'
    """
    text = " ".join(_printable(str(value)).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def reason_text(reason: object) -> str:
    """A reason as it travels, on one line: what it says, down to its root cause.

    >>> reason_text({"code": "failed_step", "text": "do failed", "beneath": {"code": "lost"}})
    'do failed: lost'
    """
    links = []
    while isinstance(reason, Mapping):
        links.append(plain(reason.get("text") or reason.get("code") or "", most=_REASON))
        reason = reason.get("beneath")
    if isinstance(reason, str):
        links.append(plain(reason, most=_REASON))
    return ": ".join(dict.fromkeys(link for link in links if link))


def block(text: str, *, indent: str = "") -> Iterator[str]:
    """Several lines, each without control characters."""
    for line in text.splitlines():
        yield f"{indent}{_printable(line)}".rstrip()


def _printable(text: str) -> str:
    """Without what moves the cursor, colours or turns the direction of writing."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)
