"""Converts a tool step's JSON arguments to the types that the function's annotations name."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from typing import Any

_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_ANY_NAME = inspect.Parameter.VAR_KEYWORD
_ANY_NUMBER = inspect.Parameter.VAR_POSITIONAL


class ArgumentsRefused(ValueError):
    """An argument is unknown, missing or of the wrong type."""

    #: The tool was not called, and its text says why.
    is_refusal = True

    def __init__(self, name: str, why: str) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why

    def __str__(self) -> str:
        return f"argument {self.name!r}: {self.why}"


def typed_arguments(
    function: Callable[..., object], given: Mapping[str, Any]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Converts arguments to the function's annotated types. Raises ArgumentsRefused.

    >>> def repeat(text: str, times: int = 2) -> str: ...
    >>> typed_arguments(repeat, {"text": "a", "times": "3"})
    ((), {'text': 'a', 'times': 3})
    >>> typed_arguments(repeat, {"text": "a", "times": "often"})
    Traceback (most recent call last):
    leadhand.functions.arguments.ArgumentsRefused: argument 'times': it is 'often'; it
    should be a valid
     integer, unable to parse string as an integer
    """
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function written in C may have none
        return (), dict(given)
    _check_names(parameters, given)
    hints = _hints(function)
    values = {name: _as(hints.get(name), name, value) for name, value in given.items()}
    places = [name for name, one in parameters.items() if one.kind is _POSITIONAL]
    args = tuple(values.pop(name) for name in places if name in values)
    return args, values


def _check_names(parameters: Mapping[str, inspect.Parameter], given: Mapping[str, Any]) -> None:
    known = {n: p for n, p in parameters.items() if p.kind not in (_ANY_NAME, _ANY_NUMBER)}
    takes_any = any(p.kind is _ANY_NAME for p in parameters.values())
    for name in given:
        if name not in known and not takes_any:
            names = ", ".join(known) or "none"
            raise ArgumentsRefused(name, f"the tool has no such argument; it has: {names}")
    for name, one in known.items():
        if one.default is inspect.Parameter.empty and name not in given:
            raise ArgumentsRefused(name, "it is missing; give it in the step's arguments")


def _hints(function: Callable[..., object]) -> dict[str, Any]:
    """The annotations; none if they cannot be evaluated."""
    try:
        return typing.get_type_hints(function, include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation is any expression of the user's
        return {}


def _as(hint: Any, name: str, value: object) -> object:
    """Convert the value to the annotation's type; keep it if pydantic does not support the type."""
    if hint is None or hint is Any:
        return value
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        return TypeAdapter(hint).validate_python(value)
    except PydanticUserError:
        return value
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        inside = ".".join(str(part) for part in first["loc"])
        where = f"in {inside}, " if inside else ""
        message = first["msg"].replace("Input should", "it should")
        shown = repr(first["input"])
        shown = shown if len(shown) <= 200 else shown[:200] + "…"
        raise ArgumentsRefused(name, f"{where}it is {shown}; {message}") from None
