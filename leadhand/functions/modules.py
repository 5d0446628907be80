"""Checks where a tool's module was imported from, and converts the arguments of its function."""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import sys
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

#: The packages that a process imports to call a tool, besides Python's own modules.
_OURS = {
    "annotated_types",
    "leadhand",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
}
#: Names that a tool file cannot have: a module of that name is imported instead.
TAKEN = frozenset({*sys.stdlib_module_names, *_OURS})
_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY
_ANY_NAME = inspect.Parameter.VAR_KEYWORD
_ANY_NUMBER = inspect.Parameter.VAR_POSITIONAL


class AnotherModule(ImportError):
    """Importing a tool's module would give a module from another file."""

    #: Its text says all: callers show no traceback.
    is_refusal = True

    def __init__(self, module: str, found: str) -> None:
        super().__init__(module, found)
        self.module = module
        self.found = found

    def __str__(self) -> str:
        return (
            f"{self.module!r} is another module here ({self.found}), which would be imported"
            f" instead of {self.module}.py in the tool folders; rename that file"
        )


def check_module(module: str, folders: Sequence[str]) -> None:
    """Raises AnotherModule if an import would load another file than that of the first folder."""
    found = imported_from(module)
    meant = (os.path.join(folder, f"{module}.py") for folder in folders)  # noqa: PTH118
    file = next(filter(os.path.lexists, meant), None)
    if found is not None and (file is None or not _same(found, file)):
        raise AnotherModule(module, found)


def is_hidden(name: str, seen: Mapping[str, object], *, folders: Sequence[str]) -> bool:
    """Whether a folder before that of an imported tool now has a file of its module's name."""
    try:
        check_module(name.partition(":")[0], folders)
    except AnotherModule as error:
        return error.found in seen
    return False


def imported_from(module: str) -> str | None:
    """Returns the file that an import of the module loads; None if there is no such module."""
    try:
        spec = importlib.util.find_spec(module)
    except ValueError:  # a module without a spec, such as `__main__`
        return "made by no file"
    return None if spec is None else spec.origin or "a folder"


def _same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)  # noqa: PTH121
    except OSError:
        return False


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
    """Converts arguments to the annotated types, as (args, kwargs). Raises ArgumentsRefused.

    >>> def repeat(text: str, times: int = 2) -> str: ...
    >>> typed_arguments(repeat, {"text": "a", "times": "3"})
    ((), {'text': 'a', 'times': 3})
    >>> typed_arguments(repeat, {"text": "a", "times": "often"})
    Traceback (most recent call last):
    leadhand.functions.modules.ArgumentsRefused: argument 'times': it is 'often'; it
    should be a valid
     integer, unable to parse string as an integer
    """
    known = _known_parameters(function)
    if known is None:  # a function written in C may have no signature
        return (), dict(given)
    _check_names(known.parameters, given)
    values = {name: _as(known, name, value) for name, value in given.items()}
    args = tuple(values.pop(name) for name in known.positional if name in values)
    return args, values


def offered_arguments(
    function: Callable[..., object], offered: Mapping[str, Any]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """Converts the offered values that are parameters of the function, as (args, kwargs).

    Raises ArgumentsRefused.

    >>> def is_short(work: str) -> bool: ...
    >>> offered_arguments(is_short, {"task": "a", "work": "b"})
    ((), {'work': 'b'})
    """
    known = _known_parameters(function)
    names = known.parameters if known is not None else ()
    return typed_arguments(function, {name: offered[name] for name in names if name in offered})


class _Parameters:
    """The parameters of a function, read once."""

    def __init__(self, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]):
        self.parameters = parameters
        self.hints = hints
        self.positional = [name for name, one in parameters.items() if one.kind is _POSITIONAL]
        #: Made at the first use: the import of pydantic takes longer than most calls.
        self.adapters: dict[str, Any] = {}


def _known_parameters(function: Callable[..., object]) -> _Parameters | None:
    try:
        return _parameters_of(function)
    except TypeError:  # an object that cannot be hashed
        return _parameters_of.__wrapped__(function)


@functools.lru_cache(maxsize=256)
def _parameters_of(function: Callable[..., object]) -> _Parameters | None:
    """The function's parameters; None if it has no signature."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return None
    return _Parameters(parameters, _hints(function))


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


def _as(known: _Parameters, name: str, value: object) -> object:
    """Convert the value to the annotation's type; keep it if pydantic does not support the type."""
    hint = known.hints.get(name)
    if hint is None or hint is Any:
        return value
    from pydantic import PydanticUserError, TypeAdapter, ValidationError

    try:
        if name not in known.adapters:
            known.adapters[name] = TypeAdapter(hint)
        return known.adapters[name].validate_python(value)
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
