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
    """The text with each placeholder replaced by its value.

    >>> fill("{a} {{b}}", {"a": "1"}.__getitem__)
    '1 {b}'
    """
    return _TOKEN.sub(lambda found: value(found[1]) if found[1] else _LITERALS[found[0]], text)


def whole_name(text: str) -> str | None:
    """The name of the placeholder if the text is nothing else.

    >>> whole_name("{files}"), whole_name("--file={files}")
    ('files', None)
    """
    found = _TOKEN.fullmatch(text)
    return None if found is None else found[1]


def as_text(value: JsonValue) -> str:
    """The value as a program's argument: a text as it is, anything else as JSON.

    >>> as_text("a b"), as_text(True), as_text([1])
    ('a b', 'true', '[1]')
    """
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class OptionRefused(ValueError):
    """A value would be parsed as an option of the program."""

    def __init__(self, name: str, value: str) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return (
            f"argument {self.name!r}: it is {self.value[:80]!r}, which the program would take for"
            f' an option; write "--" before "{{{self.name}}}" in the command, or give another value'
        )


def argv_of(command: tuple[str, ...], arguments: Mapping[str, JsonValue]) -> tuple[str, ...]:
    """The command line with all placeholders filled in. Raises OptionRefused.

    A part with a placeholder that has no value is left out; a list that is a part of its own
    becomes several parts.

    >>> argv_of(("wc", "{flag}", "--", "{files}"), {"files": ["a", "-b"]})
    ('wc', '--', 'a', '-b')
    """
    found: list[str] = []
    for part in command:
        if any(name not in arguments for name in names_in(part)):
            continue
        name = whole_name(part)
        if name is None:
            found.append(fill(part, lambda key: as_text(arguments[key])))
            continue
        value = arguments[name]
        texts = [as_text(one) for one in value] if isinstance(value, list) else [as_text(value)]
        is_text = isinstance(value, str | list)
        refused = [text for text in texts if text.startswith("-") and is_text and "--" not in found]
        if refused:
            raise OptionRefused(name, refused[0])
        found += texts
    return tuple(found)
