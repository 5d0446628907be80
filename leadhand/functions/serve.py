"""Serves calls of quick tools, one after the other: a warm process.

`python -P -m leadhand.functions.serve FD TOOLS`: FD is a socket, with requests and replies as of
`leadhand.functions.runner`, and TOOLS as in `leadhand.functions.call`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from leadhand.functions.call import call_tool, import_tools_first
from leadhand.functions.modules import AnotherModule, check_module
from leadhand.functions.runner import serve


def main(number: int, tools: str) -> int:
    """Answer calls of tools from a socket until it closes, a file changes or a thread remains."""
    import_tools_first(tools)
    folders = [str(Path.cwd()), *tools.split(os.pathsep)]
    return serve(
        number,
        partial(call_tool, tools=tools),
        folders=folders,
        is_moved=partial(_is_moved, tools=tools),
    )


def _is_moved(name: str, seen: Mapping[str, object], *, tools: str) -> bool:
    """Whether a tool folder with precedence now has a file of the imported module's name."""
    try:
        check_module(name.partition(":")[0], tools)
    except AnotherModule as error:
        return error.found in seen
    return False


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2]))
