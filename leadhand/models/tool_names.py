"""The names of tools: functions in the folders of tools, and the tools that every worker has."""

from __future__ import annotations

import re

#: Tools that every worker has.
BUILT_IN_TOOLS = frozenset({"echo", "noop"})
_FUNCTION = re.compile(r"^[A-Za-z]\w*:[A-Za-z]\w*$", re.ASCII)


def check_tool_name(value: str) -> str:
    """Returns the name, unchanged. Raises ValueError if no tool can have it.

    >>> check_tool_name("papers:search")
    'papers:search'
    """
    if value not in BUILT_IN_TOOLS and not _FUNCTION.match(value):
        raise ValueError(f"it is {value!r}; give 'module:function', 'echo' or 'noop'")
    return value
