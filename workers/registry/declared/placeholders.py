"""Parses and fills the `{name}` placeholders in an entry of tools.toml (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from pydantic import JsonValue

_TOKEN = re.compile(r"\{\{|\}\}|\{([A-Za-z_][A-Za-z0-9_]*)\}")
_LITERALS = {"{{": "{", "}}": "}"}


def names_in(text: str) -> Iterator[str]:
    """Yields the names of the placeholders in a text; `{{` and `}}` are literal braces.

    >>> list(names_in("{a}-{{b}}-{c}"))
    ['a', 'c']
    """
    yield from (found[1] for found in _TOKEN.finditer(text) if found[1] is not None)


def fill(text: str, value: Callable[[str], str]) -> str:
    """Replaces each `{name}` placeholder in a text with the value that a function returns for it.

    >>> fill("{a} {{b}}", {"a": "1"}.__getitem__)
    '1 {b}'
    """
    return _TOKEN.sub(lambda found: value(found[1]) if found[1] else _LITERALS[found[0]], text)


def whole_name(text: str) -> str | None:
    """Returns the name of the placeholder if the text is only a placeholder, else None.

    >>> whole_name("{files}"), whole_name("--file={files}")
    ('files', None)
    """
    found = _TOKEN.fullmatch(text)
    return None if found is None else found[1]


def as_text(value: JsonValue) -> str:
    """Converts a value to a program's argument: a text unchanged, anything else as JSON.

    >>> as_text("a b"), as_text(True), as_text([1])
    ('a b', 'true', '[1]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class OptionRefused(ValueError):
    """A value would be parsed as an option of the program."""

    def __init__(self, part: str, value: str) -> None:
        super().__init__(part, value)
        self.part = part
        self.value = value

    def __str__(self) -> str:
        name = next(names_in(self.part))
        return (
            f"argument {name!r}: it is {self.value[:80]!r}, which the program would take for"
            f' an option; write "--" before "{self.part}" in the command, or give another value'
        )


def argv_of(command: tuple[str, ...], arguments: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """Returns a tool's command line with all placeholders filled in. Raises OptionRefused.

    A part with a placeholder that has no value is left out, and so is a literal option before it;
    a list that is a part of its own becomes several parts.

    >>> argv_of(("wc", "{flag}", "--", "{files}"), {"files": ["a", "-b"]})
    ('wc', '--', 'a', '-b')
    >>> argv_of(("grep", "-m", "{most}", "x"), {})
    ('grep', 'x')
    """
    found: list[str] = []
    is_past = False
    for before, part in zip(("", *command), command, strict=False):
        texts = _filled(part, arguments)
        if not texts and not is_past and _is_option(before):
            found.pop()  # or it would take the next part for its value
        refused = [text for text in texts if text.startswith("-")]
        if refused and not (is_past or part.startswith("-") or _is_number(part, arguments)):
            raise OptionRefused(part, refused[0])
        found += texts
        is_past = is_past or part == "--"
    return tuple(found)


def _filled(part: str, arguments: Mapping[str, JsonValue]) -> list[str]:
    """What one part of the command becomes."""
    if any(name not in arguments for name in names_in(part)):
        return []
    name = whole_name(part)
    value = arguments[name] if name is not None else None
    if isinstance(value, list):
        return [as_text(one) for one in value]
    return [fill(part, lambda key: as_text(arguments[key]))]


def _is_option(part: str) -> bool:
    """Whether the part is an option that may take the next part for its value."""
    is_literal = not any(names_in(part))
    return is_literal and part.startswith("-") and part not in ("-", "--") and "=" not in part


def _is_number(part: str, arguments: Mapping[str, JsonValue]) -> bool:
    """Whether the part is one argument that is a number: `-1` is no option."""
    name = whole_name(part)
    return name is not None and isinstance(arguments[name], int | float)
