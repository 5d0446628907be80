"""Calls one user function and writes its result to a file.

`python -P -m leadhand.functions.call module:function FILE [TOOLS]`, with the context as JSON on
standard input. The working folder is first on `sys.path`, and Leadhand's own folder is removed, so
that a user's `app.py` or `tasks.py` is imported. With TOOLS (folders joined by `:`) the function is
a tool in one of them: the context is its arguments, and the working folder is not searched. FILE
receives a JSON pair: `["returned", value]`, `["raised", {"story": traceback, "errors": names}]`,
`["missing", why]`, or for a tool `["refused", why]`.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from leadhand.functions.arguments import ArgumentsRefused, typed_arguments
from leadhand.functions.modules import AnotherModule, check_module


def main(name: str, file: str, tools: str = "") -> int:
    """Call a user's function in this process and write its result to a file."""
    context = json.load(sys.stdin)
    set_import_path(tools)
    word, value = call_function(name, context, tools)
    written = Path(file)
    unfinished = written.with_suffix(".unfinished")
    unfinished.write_text(as_json(word, value), encoding="utf-8")
    unfinished.replace(written)
    return 0


def call_function(name: str, context: Mapping[str, Any], tools: str) -> tuple[str, object]:
    """Calls a user's function; returns a word for how it ended, and its value or error.

    A tool gets the context as its arguments; another function gets what its parameters name.
    """
    fill = typed_arguments if tools else _arguments
    try:
        function = _find(name, tools)
    except AnotherModule as error:
        return "missing", f"cannot import {name!r}: {error}"
    except Exception as error:  # noqa: BLE001 - importing runs the user's code
        return "missing", f"cannot import {name!r}: {_story(error)}"
    if not callable(function):
        return "missing", f"{name!r} is not a function but {type(function).__name__}"
    try:
        args, kwargs = fill(function, context)
    except ArgumentsRefused as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - annotations are the user's code too
        return "raised", {"story": _story(error), "errors": _error_names(error)}
    try:
        value = function(*args, **kwargs)
        return "returned", asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        return "raised", {"story": _story(error), "errors": _error_names(error)}


def _story(error: Exception) -> str:
    """The traceback, starting in the user's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _NOT_THEIRS:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-10)).strip()


def _error_names(error: Exception) -> list[str]:
    """The classes of an exception, and the status of the response if it is about one."""
    names = [one.__name__ for one in type(error).__mro__ if issubclass(one, BaseException)]
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status is None and any("HTTPError" in name for name in names):
        status = getattr(error, "code", None)
    return [*names, f"http {status}"] if isinstance(status, int) else names


_NOT_THEIRS = {
    __file__,
    importlib.__file__,
    "<frozen importlib._bootstrap>",
    "<frozen importlib._bootstrap_external>",
}


def _find(name: str, tools: str) -> Any:
    module, _, path = name.partition(":")
    if tools:
        check_module(module, tools)
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _arguments(
    function: Callable[..., object], context: Mapping[str, Any]
) -> tuple[tuple[object, ...], dict[str, object]]:
    """The context's values for parameters of their names; otherwise the context as one argument."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:  # a function written in C may have none
        return (dict(context),), {}
    named = {name: context[name] for name in parameters if name in context}
    if named or not parameters:
        return (), named
    return (dict(context),), {}


async def _awaited(value: Any) -> object:
    return await value


def set_import_path(tools: str = "") -> None:
    """Puts the tool folders, or else the working folder, first on sys.path.

    Tools belong to the operator, so modules of a working folder must not replace theirs.
    """
    root = str(Path(__file__).resolve().parents[2])
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    kept = [place for place in sys.path if place != root or place in installed]
    sys.path[:] = [*(tools.split(os.pathsep) if tools else [str(Path.cwd())]), *kept]


def as_json(word: str, value: object) -> str:
    """Serializes a function's result; a value that JSON cannot hold counts as an error."""
    try:
        return json.dumps([word, value])
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(["raised", {"story": f"it returned what JSON cannot hold: {error}"}])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
