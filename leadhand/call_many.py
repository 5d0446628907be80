"""Calls functions of one folder that are declared quick, one after the other, in one process.

`python -P -m leadhand.call_many FD [TOOLS]`: FD is a socket, TOOLS as of `leadhand.call`. Each
line that comes is a JSON object of a name, its context, its environment, and the time of the
monotonic clock by which it is to be begun or else answered `late` (null: whenever). Each answer is
a line too: a word as `leadhand.call` writes it, the value, what was printed, and whether the
process goes on. It ends when a file of the folders that was imported has changed (the word is then
`stale`, and nothing was called), and after a call that left a thread or a process behind.
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

from leadhand.call import as_json, called, look_here_first
from leadhand.tool_files import AnotherModule, check_module

#: Characters of what a call prints that are kept.
PRINTED = 64 * 1024


def main(number: int, tools: str = "") -> int:
    """Answer until nobody asks any more, or what was imported may not be used again."""
    look_here_first(tools)
    here = str(Path.cwd())
    watched = tuple(
        f"{folder}{os.sep}" for folder in (here, *filter(None, tools.split(os.pathsep)))
    )
    seen: dict[str, tuple[int, int]] = {}
    with socket.socket(fileno=number) as link, link.makefile("rb") as asked:
        for line in asked:
            asks = json.loads(line)
            if asks["by"] is not None and time.monotonic() > asks["by"]:
                link.sendall(b'["late", null, "", true]\n')
                continue
            if any(_stamp(file) != stamp for file, stamp in seen.items()) or (
                tools and _moved(asks["name"], tools, seen)
            ):
                link.sendall(b'["stale", null, "", false]\n')
                return 0
            known = len(sys.modules)
            answer = _answer(asks, here, tools)
            if len(sys.modules) != known:
                _remember(seen, watched)
            goes_on = not _left_something()
            said = f"{answer[:-1]}, {json.dumps(goes_on)}]\n"
            link.sendall(said.encode())
            if not goes_on:
                return 0
    return 0


def _answer(asked: dict[str, Any], here: str, tools: str) -> str:
    """The word, the value and what was printed, as a JSON list."""
    os.chdir(here)
    os.environ.update(asked["env"])  # noqa: TID251 - what the function reads, not what we do
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        word, value = called(asked["name"], asked["context"], tools)
    told = json.dumps(printed.getvalue()[-PRINTED:])
    return f"{as_json(word, value)[:-1]}, {told}]"


def _remember(seen: dict[str, tuple[int, int]], watched: tuple[str, ...]) -> None:
    """Note the files of the folders that are imported by now."""
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and file not in seen and file.startswith(watched):
            seen[file] = _stamp(file)


def _moved(name: str, tools: str, seen: Mapping[str, object]) -> bool:
    """Whether the module was imported of a folder before a folder that goes first had its file."""
    try:
        check_module(name.partition(":")[0], tools)
    except AnotherModule as error:
        return error.found in seen
    return False


def _stamp(file: str) -> tuple[int, int]:
    with contextlib.suppress(OSError):
        found = os.stat(file)  # noqa: PTH116 - a look at each file for each call
        return found.st_mtime_ns, found.st_size
    return 0, 0


def _left_something() -> bool:
    """Whether a call left a thread or a process behind, which must not outlive it for long."""
    if threading.active_count() > 1:
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *sys.argv[2:]))
