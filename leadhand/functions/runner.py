"""Calls users' functions under any Python from 3.9: it needs the standard library alone.

It is started by its path, not as a module, since Leadhand need not be installed for the Python that
starts it. `PYTHON runner.py call SEARCH module:function FILE` reads the context as JSON from its
input. FILE receives a JSON pair: `["returned", value]`, `["missing", why]`, `["refused", why]` if a
tool does not accept the arguments, or `["raised", details]` with the traceback and the names of the
errors. `PYTHON runner.py serve SEARCH FD` is a warm process: FD is a socket with requests.

SEARCH says when the working folder is searched for modules: `first`, `last` or `never`. Or it is
`tools=` and folders joined by `:`, for a tool: its module is searched there first, the working
folder is not searched, and arguments are converted to the annotated types. That needs Leadhand and
pydantic, which the Python of the services has.

Each request is a line: a JSON object of a name, its context, its environment, and the time on the
monotonic clock by which the call has to begin, or else the reply is `late` (null: no limit). Each
reply is a line too: a word as above, the value, the printed output, and whether the process
continues. It ends when an imported file of the folder has changed (the word is then `stale`, and
nothing was called), and after a call that left a thread or a process behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.machinery
import inspect
import io
import json
import math
import os
import re
import socket
import sys
import sysconfig
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

_FOLDER = str(Path(__file__).resolve().parent)
#: Characters of a call's output that are kept.
PRINTED = 64 * 1024
#: The most bytes of a result as JSON.
RESULT_BYTES = 16 * 1024 * 1024
#: The most members of an exception group whose texts are quoted.
_MOST_MEMBERS = 20

_SURROGATE = re.compile("[\ud800-\udfff]")

#: Calls a function by name with a context; returns a word, and its value or why it has none.
Caller = Callable[[str, Mapping[str, Any]], "tuple[str, object]"]
#: Whether the file of a function, one of those that were imported, is no longer the one to import.
Moved = Callable[[str, Mapping[str, object]], bool]
#: How SEARCH begins if the function is a tool.
TOOLS = "tools="


def main(arguments: list[str]) -> int:
    """Call one function, or serve calls until their socket closes; return the exit code."""
    verb, search, *rest = arguments
    tools = search[len(TOOLS) :].split(os.pathsep) if search.startswith(TOOLS) else []
    _set_path(search)
    call, is_moved = _tool_calls(tools) if tools else (_call_function, _never_moved)
    sys.path[:0] = tools  # after the imports above, which they must not replace
    if verb == "serve":
        return _serve(int(rest[0]), call, [str(Path.cwd()), *tools], is_moved)
    return _call_once(call, *rest)


def _tool_calls(folders: list[str]) -> tuple[Caller, Moved]:
    """Returns the function that calls a tool, and the one that says whether its file has moved."""
    from leadhand.functions.modules import check_module, is_hidden, typed_arguments

    def find(name: str) -> Any:
        check_module(name.partition(":")[0], folders)
        return find_function(name)

    def call(name: str, context: Mapping[str, Any]) -> tuple[str, object]:
        return call_found(name, context, find=find, fill=typed_arguments)

    return call, partial(is_hidden, folders=folders)


def _never_moved(_name: str, _seen: Mapping[str, object]) -> bool:
    return False


def _call_once(call: Caller, name: str, file: str) -> int:
    """Call a function with the JSON on standard input, write its result to a file, return 0."""
    word, value = call(name, json.load(sys.stdin))
    written = Path(file)
    unfinished = written.with_suffix(".unfinished")
    unfinished.write_text(as_json(word, value), encoding="utf-8")
    unfinished.replace(written)
    return 0


def _call_function(name: str, context: Mapping[str, Any]) -> tuple[str, object]:
    """Call a function of the working folder with the context values that its parameters name.

    Returns `returned` and its value, or the kind of failure and why.
    """
    return call_found(name, context, find=find_function, fill=_arguments)


def call_found(
    name: str,
    context: Mapping[str, Any],
    *,
    find: Callable[[str], Any],
    fill: Callable[..., tuple[tuple[object, ...], dict[str, object]]],
) -> tuple[str, object]:
    """Find and call a function; return `returned` and its value, or the kind of failure and why.

    `fill` makes its arguments of the context.
    """
    try:
        function = find(name)
    except Exception as error:  # noqa: BLE001 - importing runs the user's code
        why = str(error) if hasattr(error, "is_refusal") else _story(error)
        return "missing", f"cannot import {name!r}: {why}"
    if not callable(function):
        return "missing", f"{name!r} is not a function but {type(function).__name__}"
    try:
        args, kwargs = fill(function, context)
    except Exception as error:  # noqa: BLE001 - annotations are the user's code too
        if hasattr(error, "is_refusal"):
            return "refused", str(error)
        return "raised", _raised(error)
    try:
        value = function(*args, **kwargs)
        return "returned", asyncio.run(_awaited(value)) if inspect.isawaitable(value) else value
    except SystemExit:
        raise  # the function ends its process
    except BaseException as error:  # noqa: BLE001 - the user's code may raise anything
        return "raised", _raised(error)


def find_function(name: str) -> Any:
    """Import the module of a `module:function` name and return the function."""
    module, _, path = name.partition(":")
    found: Any = importlib.import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    return found


def _set_path(search: str) -> None:
    """Put the working folder first or last on sys.path, or not at all; remove that of Leadhand.

    A checkout has packages with names of users' own; of these only `leadhand` is still imported.
    """
    here, root = [str(Path.cwd())], str(Path(_FOLDER).parents[1])
    kept = [place for place in sys.path if place != _FOLDER]  # that of the script
    if root in kept and root not in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        kept = [place for place in kept if place != root]
        sys.meta_path.append(_OnlyLeadhand(root))
    first, last = (here if search == place else [] for place in ("first", "last"))
    sys.path[:] = [*first, *kept, *last]


class _OnlyLeadhand:
    """Finds `leadhand` in a folder, and nothing else there."""

    def __init__(self, root: str) -> None:
        self._root = root

    def find_spec(
        self, name: str, _path: object = None, _target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The package, unless it was found elsewhere."""
        finder = importlib.machinery.PathFinder
        return finder.find_spec(name, [self._root]) if name == "leadhand" else None


def _serve(number: int, call: Caller, folders: list[str], is_moved: Moved) -> int:
    """Answer calls from a socket until it closes, a file changes or a call leaves a thread."""
    here = str(Path.cwd())
    watched = tuple(f"{folder}{os.sep}" for folder in folders)
    seen: dict[str, tuple[int, ...]] = {}
    with socket.socket(fileno=number) as link, link.makefile("rb") as asked:
        for line in asked:
            asks = json.loads(line)
            if asks["by"] is not None and time.monotonic() > asks["by"]:
                link.sendall(b'["late", null, "", true]\n')
                continue
            changed = any(_stamp_of(file) != stamp for file, stamp in seen.items())
            if changed or is_moved(asks["name"], seen):
                link.sendall(b'["stale", null, "", false]\n')
                return 0
            known = len(sys.modules)
            answer = _answer(asks, here, call)
            if len(sys.modules) != known:
                _remember(seen, watched)
            goes_on = not _has_leftovers()
            reply = f"{answer[:-1]}, {json.dumps(goes_on)}]\n"
            link.sendall(reply.encode())
            if not goes_on:
                return 0
    return 0


def _answer(asked: Mapping[str, Any], here: str, call: Caller) -> str:
    """Call the function; return the word, the value and the output as a JSON list."""
    os.chdir(here)
    os.environ.update(asked["env"])  # noqa: TID251 - for the function, not for this process
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        word, value = call(asked["name"], asked["context"])
    output = json.dumps(printed.getvalue()[-PRINTED:])
    return f"{as_json(word, value)[:-1]}, {output}]"


def _remember(seen: dict[str, tuple[int, ...]], watched: tuple[str, ...]) -> None:
    """Record the stamps of the imported files of the folders."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file not in seen and file.startswith(watched):
            seen[file] = _stamp_of(file)


def _stamp_of(file: str) -> tuple[int, ...]:
    """As leadhand.file_stamp: its inode, size and times; or the error number."""
    try:
        found = os.stat(file)  # noqa: PTH116 - called for each file before each function call
    except OSError as error:
        return (error.errno or 0,)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _has_leftovers() -> bool:
    """Whether a call left a thread or a process behind."""
    if threading.active_count() > 1:
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _raised(error: BaseException) -> dict[str, object]:
    """The details of an exception; of a group also the error names of each member."""
    details: dict[str, object] = {"story": _story(error), "errors": _error_names(error)}
    members = _members(error)
    if members:
        shown = "; ".join(_shown(one) for one in members[:_MOST_MEMBERS])
        rest = f"; and {len(members) - _MOST_MEMBERS} more" if len(members) > _MOST_MEMBERS else ""
        details["story"] = f"{_shown(error)}: {shown}{rest}\n{details['story']}"
        details["members"] = [_error_names(one) for one in members]
    return details


def _members(error: BaseException) -> list[BaseException]:
    """The exceptions of a group and of the groups within it; none for others. Python 3.9 has none.

    >>> _members(ValueError())
    []
    """
    if all(one.__name__ != "BaseExceptionGroup" for one in type(error).__mro__):
        return []
    found: list[BaseException] = []
    for one in getattr(error, "exceptions", ()):
        found += _members(one) or [one]
    return found


def _shown(error: BaseException) -> str:
    """The class and text of an exception in one line."""
    return "".join(traceback.format_exception_only(type(error), error)).strip().splitlines()[0]


def _story(error: BaseException) -> str:
    """The traceback, starting in the user's own code."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in _NOT_THEIRS:
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace, limit=-10)).strip()


def _error_names(error: BaseException) -> list[str]:
    """The classes of an exception, and the status of the response if it is about one."""
    names = [one.__name__ for one in type(error).__mro__ if issubclass(one, BaseException)]
    status = None
    with contextlib.suppress(Exception):  # its properties are the user's code
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


def as_json(word: str, value: object) -> str:
    """Convert a word and a value to a JSON pair; an unrepresentable or long one gives `raised`."""
    try:
        text = json.dumps(value)
        if word == "returned":
            _require_unchanged(value, "result")
    except (TypeError, ValueError, RecursionError) as error:
        return json.dumps(["raised", {"story": f"it returned what JSON cannot hold: {error}"}])
    if len(text) > RESULT_BYTES:
        return json.dumps(["raised", {"story": _too_long(word, len(text))}])
    return f"[{json.dumps(word)}, {text}]"


def _require_unchanged(value: object, path: str) -> None:
    """Raises ValueError for what JSON would change or drop in silence, with its path."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}: it has no {value}")
    if isinstance(value, str) and _SURROGATE.search(value):
        raise ValueError(f"{path}: its text has a lone surrogate")
    if isinstance(value, dict):
        known: dict[str, object] = {}
        for key, item in value.items():
            text = key if isinstance(key, str) else json.dumps(key)
            if text in known:
                raise ValueError(f"{path}: its keys {known[text]!r} and {key!r} are both {text!r}")
            known[text] = key
            _require_unchanged(key, f"{path}, a key")
            _require_unchanged(item, f"{path}.{text}")
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            _require_unchanged(item, f"{path}[{number}]")


def _too_long(word: str, size: int) -> str:
    sizes = f"{size:,} bytes as JSON, more than {RESULT_BYTES:,}"
    if word == "returned":
        return f"it returned {sizes}; write a file and return its path"
    return f"an error of {sizes}; raise a shorter one"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
