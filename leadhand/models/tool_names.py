"""The names of tools: functions, entries of tools.toml, tools of MCP servers, agents and flows."""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

#: Tools that every worker has.
BUILT_IN_TOOLS = frozenset({"echo", "noop"})
#: The file that declares commands, requests and servers, beside each agents file.
TOOLS_FILE = "tools.toml"
#: The beginnings of the names of agents and flows as tools.
AGENT, FLOW = "agent:", "flow:"
#: Names that no server can have: tools of compiled flows and graphs begin with them.
RESERVED_SERVERS = frozenset({"flow", "graph"})
#: Files that would give functions the names of agents and flows.
RESERVED_MODULES = frozenset({"agent", "flow"})
_FUNCTION = re.compile(r"^[A-Za-z]\w*:[A-Za-z]\w*$", re.ASCII)
#: An agent's or flow's name; an entry of tools.toml; a tool of a server.
_OTHERS = re.compile(
    r"^(?:(?:agent|flow):[A-Za-z0-9][A-Za-z0-9_.-]{0,63}"
    r"|[A-Za-z][A-Za-z0-9_-]{0,63}"
    r"|(?!flow\.|graph\.)[A-Za-z][A-Za-z0-9_-]{0,63}\.[A-Za-z0-9_./-]{1,128})$",
    re.ASCII,
)
#: What a tool is, by its name alone: an entry of tools.toml is `declared`.
Shape: TypeAlias = Literal["built-in", "function", "declared", "mcp", "agent", "flow"]


#: What the names of tools begin with that the submitter of a graph carries out itself.
LOCAL_PREFIX = "local:"
_LOCAL = re.compile(r"^local:[^\x00-\x1f\x7f]+$")


def is_local_tool(name: str) -> bool:
    """Whether a tool of a graph runs in the submitter's own process.

    >>> is_local_tool("local:search papers"), is_local_tool("papers:search")
    (True, False)
    """
    return name.startswith(LOCAL_PREFIX)


def check_graph_tool_name(value: str) -> str:
    """Validates and returns the name of a tool in a graph, also `local:...`. Raises ValueError."""
    return value if _LOCAL.match(value) else check_tool_name(value)


def check_tool_name(value: str) -> str:
    """Validates and returns the name of a tool, but not `local:...`. Raises ValueError.

    >>> check_tool_name("papers:search"), check_tool_name("github.search_issues")
    ('papers:search', 'github.search_issues')
    """
    if is_local_tool(value):
        raise ValueError(f"it is {value!r}: only graphs have local tools; name another module")
    if not _FUNCTION.match(value) and not _OTHERS.match(value):
        raise ValueError(
            f"it is {value!r}; give 'module:function', 'agent:NAME', 'flow:NAME', 'SERVER.TOOL',"
            " the name of an entry of tools.toml, 'echo' or 'noop'"
        )
    return value


def check_flow_tool_name(value: str) -> str:
    """Validates the name of a tool in a flow, which cannot be a flow. Raises ValueError."""
    if check_tool_name(value).startswith(FLOW):
        raise ValueError(f"it is {value!r}; a flow runs another one by a step of the type subflow")
    return value


def shape_of(name: str) -> Shape:
    """Returns the kind of a tool, by the form of its name.

    >>> [shape_of(n) for n in ("echo", "a:b", "wc", "github.search", "agent:claude", "flow:x")]
    ['built-in', 'function', 'declared', 'mcp', 'agent', 'flow']
    """
    if name in BUILT_IN_TOOLS:
        return "built-in"
    if name.startswith(AGENT):
        return "agent"
    if name.startswith(FLOW):
        return "flow"
    if ":" in name:
        return "function"
    return "mcp" if "." in name else "declared"


def owner_of(name: str) -> str:
    """Returns the module, server or entry that defines a tool: the first part of its name.

    >>> owner_of("papers:search"), owner_of("github.search"), owner_of("wc")
    ('papers', 'github', 'wc')
    """
    return name.partition("." if shape_of(name) == "mcp" else ":")[0]


def is_internal(name: str) -> bool:
    """Whether the tool is an internal one, which only compiled flows and graphs use.

    >>> is_internal("flow.tally"), is_internal("flow:review")
    (True, False)
    """
    return name.partition(".")[0] in RESERVED_SERVERS and "." in name and ":" not in name


def is_newer_kind(name: str) -> bool:
    """Whether only workers of program schema 7 or later know tools of this kind."""
    return shape_of(name) not in ("built-in", "function")
