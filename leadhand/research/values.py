"""Converts Python values to JSON; refuses those that JSON would change, and names their path."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set, ValuesView
from dataclasses import fields, is_dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from pydantic import SecretBytes, SecretStr
from pydantic_core import PydanticSerializationError, to_jsonable_python

#: Bits of the longest integer; JSON readers of Python refuse more than 4,300 digits.
_LONGEST_INT = 14_000
_SURROGATE = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z_]\w*")


class ValueRefusedError(ValueError):
    """JSON cannot hold a value as it is; the text begins with the value's path."""


def to_json_value(value: object, path: str) -> Any:
    """Converts a value to JSON: its containers here, other types as pydantic does.

    Iterators are collected. Raises ValueRefusedError.

    >>> to_json_value({"at": Decimal("1.10"), 2: {"b", "a"}}, "result")
    {'at': '1.10', '2': ['a', 'b']}
    >>> to_json_value({"score": [1.0, math.nan]}, "result")
    Traceback (most recent call last):
    leadhand.research.values.ValueRefusedError: result.score[1]: JSON has no nan
    """
    try:
        return _converted(value, path)
    except RecursionError:
        raise ValueRefusedError(f"{path}: it contains itself, or is nested too deeply") from None


def _converted(value: object, path: str) -> Any:
    match value:
        case None | bool():
            return value
        case Enum():
            return _converted(value.value, path)
        case str():
            return _text(str.__str__(value), path)
        case int():
            return _integer(int.__int__(value), path)
        case float():
            return _number(float.__float__(value), path)
        case _:
            return _container(value, path)


def _container(value: object, path: str) -> Any:
    match value:
        case bytes() | bytearray() | memoryview() | io.IOBase():
            return _other(value, path)
        case Mapping():
            return _object(value.items(), path)
        case Set():
            return _list(_in_order(value), path)
        case Sequence() | ValuesView() | Iterator():
            return _list(value, path)
        case _ if hasattr(type(value), "__pydantic_serializer__"):
            return _of_model(value, path)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return _object([(one.name, getattr(value, one.name)) for one in fields(value)], path)
        case _:
            return _other(value, path)


def _list(items: Iterable[object], path: str) -> list[Any]:
    return [_converted(item, f"{path}[{number}]") for number, item in enumerate(items)]


def _object(items: Iterable[tuple[object, object]], path: str) -> dict[str, Any]:
    keys = _Keys(path)
    return {(name := keys.add(key)): _converted(item, _below(path, name)) for key, item in items}


class _Keys:
    """The keys of one object: refuses two that are the same text in JSON."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, object] = {}

    def add(self, key: object) -> str:
        """Return a key as text. Raises ValueRefusedError."""
        text = _key(key, self._path)
        if text in self._known:
            first = self._known[text]
            both = f"{_shown(first)} and {_shown(key)}"
            raise _refused(self._path, f"its keys {both} are both {text!r} in JSON")
        self._known[text] = key
        return text


def _key(key: object, path: str) -> str:
    match key:
        case Enum():
            return _key(key.value, path)
        case str():
            return _text(str(key), f"{path}, a key")
        case None:
            return "null"
        case bool():
            return str(key).lower()
        case int() | float():
            return repr(_converted(key, f"{path}, a key"))
        case tuple() | frozenset() | bytes():
            text = None
        case _:
            text = _converted(key, f"{path}, a key")
    if not isinstance(text, str):
        raise _refused(path, f"its key {_shown(key)} is no text and no number")
    return text


def _in_order(items: Set[Any]) -> Iterable[object]:
    """The items of a set: sorted if possible, since its own order differs between processes."""
    try:
        return sorted(items)
    except TypeError:
        return items


def _text(text: str, path: str) -> str:
    if _SURROGATE.search(text):
        raise _refused(path, "its text has a lone surrogate, which UTF-8 cannot encode")
    return text


def _integer(number: int, path: str) -> int:
    if number.bit_length() > _LONGEST_INT:
        raise _refused(path, "it is an integer of more than 4,000 digits")
    return number


def _number(number: float, path: str) -> float:
    if not math.isfinite(number):
        raise _refused(path, f"JSON has no {number}")
    return number


def _of_model(value: Any, path: str) -> Any:
    """The JSON of a pydantic model or dataclass, unless that would change one of its values."""
    serializer = value.__pydantic_serializer__
    _check(serializer.to_python(value, by_alias=True, warnings=False), path)
    return _other(value, path)


def _check(value: object, path: str) -> None:
    """Raises ValueRefusedError for what pydantic's JSON would change in silence."""
    match value:
        case float():
            _number(value, path)
        case SecretStr() | SecretBytes():
            raise _secret(path)
        case dict():
            keys = _Keys(path)
            for key, item in value.items():
                _check(item, _below(path, keys.add(key)))
        case list() | tuple() | set() | frozenset():
            for number, item in enumerate(value):
                _check(item, f"{path}[{number}]")
        case _:
            pass


def _other(value: object, path: str) -> Any:
    kind = type(value).__qualname__
    match value:
        case SecretStr() | SecretBytes():
            raise _secret(path)
        case io.IOBase():
            raise _refused(path, f"JSON has no form for {kind}")
        case Decimal() if not value.is_finite():
            raise _refused(path, f"JSON has no {value}")
        case _:
            pass
    try:
        plain = to_jsonable_python(value)
    except UnicodeDecodeError:
        raise _refused(path, f"its {kind} are no UTF-8 text") from None
    except PydanticSerializationError:
        raise _refused(path, f"JSON has no form for {kind}") from None
    except ValueError as error:
        raise _refused(path, f"JSON has no form for {kind}: {error}") from error
    return _converted(plain, path)


def _shown(key: object) -> str:
    try:
        return repr(key)[:80]
    except Exception:  # noqa: BLE001 - it is the user's code
        return f"of type {type(key).__qualname__}"


def _refused(path: str, why: str) -> ValueRefusedError:
    return ValueRefusedError(f"{path}: {why}")


def _secret(path: str) -> ValueRefusedError:
    return _refused(path, "it is a secret, which would be replaced by asterisks")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if _NAME.fullmatch(name) else f"{path}[{name!r}]"
