"""Calls one tool, a function of an operator's folder, and writes its result to a file.

`python -P -m leadhand.functions.call module:function FILE TOOLS`: TOOLS are folders joined by `:`.
The context on standard input is the tool's arguments, and the working folder is not searched. FILE
receives a pair as of `leadhand.functions.runner`, or `["refused", why]`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from typing import Any

from leadhand.functions.modules import check_module, typed_arguments
from leadhand.functions.runner import call_found, call_once, find_function, import_first


def main(name: str, file: str, tools: str) -> int:
    """Call a tool with the arguments on standard input, and write its result to a file."""
    import_tools_first(tools)
    return call_once(partial(call_tool, tools=tools), name, file)


def import_tools_first(tools: str) -> None:
    """Put the tool folders first on sys.path: no module of a working folder replaces a tool's."""
    import_first(tools.split(os.pathsep))


def call_tool(name: str, context: Mapping[str, Any], *, tools: str) -> tuple[str, object]:
    """Call a tool with these arguments; return `returned` and its value, or the kind of failure."""
    return call_found(name, context, find=partial(_find, tools=tools), fill=typed_arguments)


def _find(name: str, *, tools: str) -> Any:
    check_module(name.partition(":")[0], tools)
    return find_function(name)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
