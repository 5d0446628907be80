"""Removes terminal sequences and escapes control characters in text from outside (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leadhand.models.views.step import ToolCallView

#: The most characters of one reason, which may quote an agent's error.
_REASON = 400

#: Parts of words in Persian, Hebrew or emoji, which Python does not call printable.
_JOINERS_AND_MARKS = frozenset("\u200c\u200d\u200e\u200f")
#: Control characters (C0, DEL, C1), line separators and bidirectional controls, except the marks
#: U+200E and U+200F, which affect only adjacent letters.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u2028-\u202e\u2066-\u2069]|\r(?!\n)"
)
#: The same, and line endings.
_LINE_CONTROLS = re.compile(_CONTROLS.pattern + "|[\r\n]")


#: What moves a terminal's cursor, sets colours, titles or links; those of 7 bits only: output in
#: UTF-8 has no others. Each repetition is bounded, so that no text takes more than linear time.
_ANSI = re.compile(
    r"\x1b(?:\[[0-?]{0,64}[ -/]{0,8}[@-~]|[\]P^_X][^\x07\x1b\n]{0,2048}(?:\x07|\x1b\\)"
    r"|[ -/]{1,4}[0-~]|[78=>DEHMZc])"
)


def without_ansi(text: str) -> str:
    r"""Removes colours, cursor movements and other terminal sequences from a text.

    >>> without_ansi("\x1b[2J\x1b[1;5H\x1b[38;5;196m▓▓\x1b[0m \x1b]0;title\x07end")
    '▓▓ end'
    """
    return _ANSI.sub("", text) if "\x1b" in text else text


def render_terminal(text: str) -> str:
    r"""Returns the lines that a terminal shows in the end: no escapes, no overwritten progress.

    >>> render_terminal(" 10%\r 99%\r100%\r\nok\r\n\x1b[31mred\x1b[0m")
    '100%\r\nok\r\nred'
    """
    if "\r" not in text and "\x1b" not in text:
        return text
    return "\n".join(map(_last_frame, without_ansi(text).split("\n")))


def _last_frame(line: str) -> str:
    """The text of a line after its last carriage return; those at its end stay."""
    end = len(line.rstrip("\r"))
    return line[:end].rpartition("\r")[2] + line[end:]


def escape_controls(text: str) -> str:
    r"""Escapes control characters as `\uXXXX`, except newlines and tabs.

    JSON writes them so in its strings: a text that is JSON stays the same JSON.

    >>> escape_controls("a\x1b]52;c;eA==\x07\n\u202eb")
    'a\\u001b]52;c;eA==\\u0007\n\\u202eb'
    """
    return _CONTROLS.sub(_escaped, text)


def without_controls(text: str) -> str:
    r"""Removes terminal sequences and control characters, except newlines and tabs.

    >>> without_controls("a\x1b[31mred\x1b[0m\x00\r\n\tb")
    'ared\n\tb'
    """
    return _CONTROLS.sub("", without_ansi(text)).replace("\r\n", "\n")


def escape_line(text: str) -> str:
    r"""Escapes control characters and line ends, so that the text is one line.

    >>> escape_line("a\r\nb")
    'a\\u000d\\u000ab'
    """
    return _LINE_CONTROLS.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def plain(value: object, *, most: int = 160) -> str:
    r"""Formats a value as one bounded line, without control characters and colours.

    >>> plain("\x1b[31mred\x1b[0m\nand  more", most=10)
    'red and m…'
    """
    text = " ".join(_printable(str(value)).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def headline(text: str, *, most: int = 200) -> str:
    r"""Returns the first line of a text that has words, without the sign of a heading.

    >>> headline("\n# Add a login page\nWith tests."), headline("")
    ('Add a login page', '')
    """
    first = next((line for line in text.splitlines() if line.strip()), "")
    return plain(first.lstrip("# "), most=most)


def plain_ends(value: object, *, most: int = 160) -> str:
    r"""Formats a value as one bounded line that keeps the beginning and the end.

    >>> plain_ends("exited with code 1: Traceback\n  File x\nValueError: no", most=33)
    'exited with… File x ValueError: no'
    """
    text = plain(value, most=len(str(value)))
    if len(text) <= most:
        return text
    head = text[: most // 3].rstrip()
    tail = text[len(text) - (most - most // 3) :]
    return f"{head}… {tail.partition(' ')[2] or tail}"


#: Codes of reasons that have no text, in words.
_CODES = {"user_stop": "stopped by a user"}


def reason_text(reason: object) -> str:
    """Formats a reason and its causes on one line, the root cause last.

    >>> reason_text({"code": "failed_step", "text": "do failed", "beneath": {"code": "lost"}})
    'do failed: lost'
    >>> reason_text({"code": "user_stop"})
    'stopped by a user'
    """
    links = []
    while isinstance(reason, Mapping):
        code = reason.get("code") or ""
        links.append(plain_ends(reason.get("text") or _CODES.get(code, code), most=_REASON))
        reason = reason.get("beneath")
    if isinstance(reason, str):
        links.append(plain_ends(reason, most=_REASON))
    return ": ".join(dict.fromkeys(link for link in links if link))


def tool_lines(calls: Iterable[ToolCallView]) -> Iterator[str]:
    """Formats two lines for each tool call of an agent: the call, and its result."""
    for call in calls:
        yield f"> {plain(call.name)}: {plain(call.input)}"
        if call.failed is None:
            yield "< no result"
        else:
            result = plain(call.result) or "no output"
            yield f"< failed: {result}" if call.failed else f"< {result}"


def block(text: str, *, indent: str = "") -> Iterator[str]:
    """Yields the lines of a text, each indented and without control characters."""
    for line in text.splitlines():
        yield f"{indent}{_printable(line)}".rstrip()


def _printable(text: str) -> str:
    """The text without terminal sequences, and with unprintable characters replaced by spaces."""
    if text.isprintable():
        return text
    text = without_ansi(text)
    return "".join(c if c.isprintable() or c in _JOINERS_AND_MARKS else " " for c in text)


def list_first(names: Sequence[str], most: int, of: int | None = None) -> str:
    """Formats the first names, and how many more there are; `of` is their number if some are cut.

    >>> list_first(["a", "b"], 2), list_first(["a", "b", "c"], 2), list_first(["a", "b"], 1, of=9)
    ('a, b', 'a, b and 1 more', 'a and 8 more')
    """
    count = len(names) if of is None else of
    more = f" and {count - most} more" if count > most else ""
    return ", ".join(names[:most]) + more
