"""The values of references: a part of a result, a default, or why there is none (pure)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from pydantic import JsonValue

from leadhand.models.references import (
    FlowReference,
    Reference,
    ReferenceFault,
    Target,
    map_texts,
    parse,
    path_of,
)

#: The most characters that all references of one value are replaced with.
FILLED_CHARACTERS = 4 * 1024 * 1024
#: Characters of a text in an error.
_SHOWN = 60


class Held(NamedTuple):
    """The value of a step or an input, before the keys of a reference are followed."""

    value: JsonValue = None
    #: Whether the value is that of a failed step: `{"error": text}`.
    failed: bool = False
    #: Why there is no value; empty if there is one.
    missing: str = ""


def value_at(
    reference: Reference | FlowReference, target: Target | FlowReference, held: Held
) -> JsonValue:
    """Returns the value of a reference, or its default. Raises ReferenceFault without either.

    The default replaces a missing value, null, and the value of a step that failed.

    >>> from leadhand.models.references import target_of
    >>> title = parse('${paper.title ?? "none"}')[0]
    >>> target = target_of(title, {"paper"})
    >>> [value_at(title, target, Held(value)) for value in ({"title": "A"}, {"title": None}, {})]
    ['A', 'none', 'none']
    """
    default, why = reference.default, held.missing
    asks_for_error = target.keys[:1] == ("error",)
    if default is not None and (why or (held.failed and not asks_for_error)):
        return default.value
    if why:
        raise ReferenceFault(reference.text, why)
    try:
        found = look_up(held.value, target.keys)
    except KeyError as error:
        if default is not None:
            return default.value
        raise ReferenceFault(reference.text, _why_missing(held, str(error.args[0]))) from None
    return default.value if found is None and default is not None else found


def _why_missing(held: Held, why: str) -> str:
    error = held.value.get("error") if held.failed and isinstance(held.value, dict) else None
    return why if error is None else f"the step failed: {as_text(error)}"


def fill(value: JsonValue, resolve: Callable[[Reference], JsonValue]) -> JsonValue:
    """Replaces all references in a JSON value by the values that `resolve` returns for them.

    Raises ReferenceFault if the result is too large.
    A text that is one reference becomes its value; within a text a value becomes text, anything
    but a text as JSON.

    >>> fill(["${a}", "got ${a}"], lambda _: [1, "x"])
    [[1, 'x'], 'got [1, "x"]']
    """
    return map_texts(value, _Filling(resolve).text)


class _Filling:
    """Fills in the texts of one JSON value, up to FILLED_CHARACTERS in all."""

    def __init__(self, resolve: Callable[[Reference], JsonValue]) -> None:
        self._resolve = resolve
        self._left = FILLED_CHARACTERS

    def text(self, text: str) -> JsonValue:
        parts = parse(text)
        if len(parts) == 1 and isinstance(parts[0], Reference):
            return self._value(parts[0])[0]
        return "".join(part if isinstance(part, str) else self._value(part)[1] for part in parts)

    def _value(self, reference: Reference) -> tuple[JsonValue, str]:
        """The value of a reference, and its text."""
        value = self._resolve(reference)
        text = as_text(value)
        self._left -= len(text)
        if self._left < 0:
            most = f"all references of a step may have {FILLED_CHARACTERS:,} characters"
            raise ReferenceFault(reference.text, f"it is too long: {most} together")
        return value, text


def as_text(value: JsonValue) -> str:
    """Converts a value to text: a text unchanged, anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def is_true(value: JsonValue) -> bool:
    """Whether a value counts as true: not empty, null, 0, false, nor the text `false`, `no` or `0`.

    >>> [is_true(value) for value in ("x", [0], "", "no", 0, None)]
    [True, True, False, False, False, False]
    """
    return bool(value) and value not in ("false", "no", "0")


def look_up(value: JsonValue, keys: tuple[str, ...]) -> JsonValue:
    """Returns the value at these keys and list positions (from 0). Raises KeyError.

    >>> look_up({"papers": [{"title": "A"}]}, ("papers", "0", "title"))
    'A'
    >>> look_up({"papers": []}, ("paper",))
    Traceback (most recent call last):
    KeyError: "it has no 'paper'; it has: papers"
    """
    for number, key in enumerate(keys):
        where = "it" if number == 0 else path_of(keys[:number])
        if isinstance(value, dict):
            if key not in value:
                names = ", ".join(list(value)[:20]) or "nothing"
                raise KeyError(f"{where} has no {key!r}; it has: {names}")
            value = value[key]
        elif isinstance(value, list):
            if not (key.isdecimal() and int(key) < len(value)):
                raise KeyError(f"{where} is a list of {len(value)} and has no [{key}]")
            value = value[int(key)]
        else:
            raise KeyError(f"{where} is {_brief(value)} and has no {key!r}")
    return value


def _brief(value: JsonValue) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def require_list(value: object) -> object:
    """Returns the value if it is a list or a text (a reference to a list), else raises ValueError.

    It is called before the types of the field are tried, which would each report an error.
    """
    if not isinstance(value, str | list):
        raise ValueError("it is not a list; give a list, or one reference to a list")
    return value
