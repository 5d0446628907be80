"""Calls one function of the user's: its context on standard input, what it returns to a file.

`python -P -m leadhand.call module:function FILE [TOOLS]`. The working folder comes first among the
places where modules are looked for, and the folder that Leadhand itself was installed from does not
count, so that a user's `app.py` or `tasks.py` is the user's. Given TOOLS, folders joined by `:`,
the function is a tool of one of them: the context is its arguments, and the working folder is not
looked into. The file gets a JSON pair: `["returned", value]`, `["raised", traceback]`,
`["missing", why]`, or of a tool `["refused", why]`.
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

import leadhand
from leadhand.tool_arguments import ArgumentsRefused, typed_arguments
from leadhand.tool_files import AnotherModule, check_module


def main(name: str, file: str, tools: str = "") -> int:
    """Call the function that `name` names and write down what came of it."""
    context = json.load(sys.stdin)
    look_here_first(tools)
    word, value = called(name, context, tools)
    written = Path(file)
    unfinished = written.with_suffix(".unfinished")
    unfinished.write_text(as_json(word, value), encoding="utf-8")
    unfinished.replace(written)
    return 0


def called(name: str, context: Mapping[str, Any], tools: str) -> tuple[str, object]:
    """What came of the call: a word, and the value or why there is none.

    Tools are told what they are by their arguments, other functions by the context.
    """
    fill = typed_arguments if tools else _arguments
    try:
        function = _find(name, tools)
    except AnotherModule as error:
        return "missing", f"cannot import {name!r}: {error}"
    except Exception as error:  # noqa: BLE001 - importing runs the user's code
        return "missing", f"cannot import {name!r}: {_story(error)}"
    if not callable(function):
        return "missing", f"{name!r} is no function but {type(function).__name__}"
    try:
        args, kwargs = fill(function, context)
    except ArgumentsRefused as error:
        return "refused", str(error)
    except Exception as error:  # noqa: BLE001 - annotations are the user's code too
        return "raised", _story(error)
    try:
        value = function(*args, **kwargs)
        return "returned", asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        return "raised", _story(error)


def _story(error: Exception) -> str:
    """The traceback from where the user's own code begins."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _NOT_THEIRS:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-10)).strip()


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
    """The whole context for the one parameter, or a value for each parameter of a known name."""
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


def look_here_first(tools: str = "") -> None:
    """Modules are looked for in the working folder first, and not where Leadhand stands.

    Those of tools are the operator's: what lies in a working folder takes no place of theirs.
    """
    root = str(Path(leadhand.__file__).resolve().parent.parent)
    installed = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    kept = [place for place in sys.path if place != root or place in installed]
    sys.path[:] = [*(tools.split(os.pathsep) if tools else [str(Path.cwd())]), *kept]


def as_json(word: str, value: object) -> str:
    """The pair as JSON; what JSON cannot hold has raised."""
    try:
        return json.dumps([word, value])
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(["raised", f"it returned what JSON cannot hold: {error}"])


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
