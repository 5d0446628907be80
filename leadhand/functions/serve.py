"""Serves calls of one folder's quick functions, one after the other: a warm process.

`python -P -m leadhand.functions.serve FD [TOOLS]`: FD is a socket, TOOLS as in
`leadhand.functions.call`. Each request is a line: a JSON object of a name, its context, its
environment, and the time on the monotonic clock by which the call has to begin, or else the reply
is `late` (null: no limit). Each reply is a line too: a word as in `leadhand.functions.call`, the
value, the printed output, and whether the process continues. The process ends when an imported file
of the folders has changed (the word is then `stale`, and nothing was called), and after a call that
left a thread or a process behind.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from leadhand.file_stamp import Stamp, stamp_of
from leadhand.functions.call import as_json, call_function, set_import_path
from leadhand.functions.modules import AnotherModule, check_module

#: Characters of a call's output that are kept.
PRINTED = 64 * 1024


def main(number: int, tools: str = "") -> int:
    """Serve calls of functions as a warm process until the socket closes or a file changes."""
    set_import_path(tools)
    here = str(Path.cwd())
    watched = tuple(
        f"{folder}{os.sep}" for folder in (here, *filter(None, tools.split(os.pathsep)))
    )
    seen: dict[str, Stamp] = {}
    with socket.socket(fileno=number) as link, link.makefile("rb") as asked:
        for line in asked:
            asks = json.loads(line)
            if asks["by"] is not None and time.monotonic() > asks["by"]:
                link.sendall(b'["late", null, "", true]\n')
                continue
            if any(stamp_of(file) != stamp for file, stamp in seen.items()) or (
                tools and _moved(asks["name"], tools, seen)
            ):
                link.sendall(b'["stale", null, "", false]\n')
                return 0
            known = len(sys.modules)
            answer = _answer(asks, here, tools)
            if len(sys.modules) != known:
                _remember(seen, watched)
            goes_on = not _has_leftovers()
            reply = f"{answer[:-1]}, {json.dumps(goes_on)}]\n"
            link.sendall(reply.encode())
            if not goes_on:
                return 0
    return 0


def _answer(asked: dict[str, Any], here: str, tools: str) -> str:
    """Call the function; return the word, the value and the output as a JSON list."""
    os.chdir(here)
    os.environ.update(asked["env"])  # noqa: TID251 - for the function, not for this process
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        word, value = call_function(asked["name"], asked["context"], tools)
    output = json.dumps(printed.getvalue()[-PRINTED:])
    return f"{as_json(word, value)[:-1]}, {output}]"


def _remember(seen: dict[str, Stamp], watched: tuple[str, ...]) -> None:
    """Record the stamps of the imported files of the folders."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file not in seen and file.startswith(watched):
            seen[file] = stamp_of(file)


def _moved(name: str, tools: str, seen: Mapping[str, object]) -> bool:
    """Whether a tool folder with precedence now has a file of the imported module's name."""
    try:
        check_module(name.partition(":")[0], tools)
    except AnotherModule as error:
        return error.found in seen
    return False


def _has_leftovers() -> bool:
    """Whether a call left a thread or a process behind."""
    if threading.active_count() > 1:
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
