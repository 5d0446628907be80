"""Reads a TOML file of a user and finds the line of a fault in it."""

from __future__ import annotations

import errno
import os
import re
import stat
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

_AT = re.compile(
    r"^(?P<why>.*) \(at (?:line (?P<line>\d+), column \d+|end of document)\)$", re.DOTALL
)


class TomlUnreadable(ValueError):
    """A file exists and cannot be read as TOML."""

    def __init__(self, file: str, line: int | None, why: str, text: str = "") -> None:
        super().__init__(file, line, why, text)
        self.file = file
        self.line = line
        self.why = why
        self.text = text

    def __str__(self) -> str:
        return f"{place_in(self.file, self.line)}: {self.why}"


def place_in(file: str, line: int | None) -> str:
    """Formats a file and a line of it, for error messages.

    >>> place_in("agents.toml", 3), place_in("agents.toml", None)
    ('agents.toml, line 3', 'agents.toml')
    """
    return file if line is None else f"{file}, line {line}"


def read_toml(file: Path) -> tuple[str, dict[str, object]]:
    """Reads a TOML file; returns its text and content, both empty if it does not exist.

    Raises TomlUnreadable.
    """
    text = read_text(file)
    return text, parse_toml(file, text)


def read_text(file: Path) -> str:
    """Reads the text of a TOML file; empty if it does not exist. Raises TomlUnreadable."""
    try:
        content = _content(file)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        why = f"cannot be read: {error.strerror}; make it a file that the worker's user can read"
        raise TomlUnreadable(str(file), None, why) from error
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        why, text = "is not UTF-8; save the file as UTF-8", content.decode(errors="replace")
        raise TomlUnreadable(str(file), line, why, text) from None
    return text


def line_of(text: str, path: Sequence[str]) -> int | None:
    r"""Returns the line (from 1) of the deepest part of a key path that a TOML text has; else None.

    A text that ends within a statement is not TOML. So the shortest beginning of the text that
    is TOML and has the key ends with the statement that defines it.

    >>> text = "[agents.x]\n\ncommand = [\n  'a',\n]\n"
    >>> line_of(text, ["agents", "x"]), line_of(text, ["agents", "x", "command", "0"])
    (1, 3)
    """
    whole, wanted = tomllib.loads(text), list(path)
    while wanted and not _has(whole, wanted):
        wanted.pop()
    if not wanted:
        return None
    lines = text.split("\n")
    low, high = 0, len(lines)  # the key is not in the first `low` lines, and in the first `high`
    while high - low > 1:
        ends = _ending_near(lines, low, high)
        if ends is None:
            break
        if _has(tomllib.loads(_first(lines, ends)), wanted):
            high = ends
        else:
            low = ends
    while low < high - 1 and lines[low].lstrip()[:1] in ("", "#"):
        low += 1
    return low + 1


def _ending_near(lines: Sequence[str], low: int, high: int) -> int | None:
    """A number of lines between two, near their middle, after which a statement ends."""
    middle = (low + high) // 2
    counts: list[int] = [*range(middle, low, -1), *range(middle + 1, high)]
    for count in counts:
        try:
            tomllib.loads(_first(lines, count))
        except ValueError:
            continue
        return count
    return None


def _first(lines: Sequence[str], count: int) -> str:
    return "\n".join(lines[:count])


def _has(value: object, path: Sequence[str]) -> bool:
    for name in path:
        if not (isinstance(value, Mapping) and name in value):
            return False
        value = value[name]
    return True


def _content(file: Path) -> bytes:
    """The bytes of a regular file; to read a pipe would block."""
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        with open(opened, "rb", closefd=False) as stream:
            return stream.read()
    finally:
        os.close(opened)


def parse_toml(file: Path, text: str) -> dict[str, object]:
    """Parses the text of a TOML file. Raises TomlUnreadable."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise TomlUnreadable(str(file), None, "is nested too deep; simplify it", text) from None
    except ValueError as error:
        found = _AT.match(str(error))
        why = found["why"] if found else str(error)
        line = int(found["line"]) if found and found["line"] else text.count("\n") + 1
        why = f"is not TOML: {why}; correct this line"
        raise TomlUnreadable(str(file), line, why, text) from None
