"""Configures Leadhand's MCP server for an agent: it is started by this worker's interpreter.

The server gets the attempt's token by environment variable, so that the token is neither in the
file nor in the command line, and a superseded attempt cannot report.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from workers.processes.own_folders import claim_session_folder, create_file

#: The name of the server: an agent calls its tools `mcp__leadhand__...`.
SERVER = "leadhand"
_FILE = "mcp.json"
#: The variables of a body that the server needs. Codex passes on only those that are named.
_VARIABLES = (
    "LEADHAND_URL", "LEADHAND_TOKEN", "LEADHAND_SESSION", "LEADHAND_STEP", "LEADHAND_ITERATION",
    "LEADHAND_PLACE",
)  # fmt: skip
#: Seconds that Codex waits for a tool; `wait_session` takes up to 600.
_TOOL_TIMEOUT_S = 630
#: Seconds that Codex waits for the server to start; the machine may be busy.
_STARTUP_TIMEOUT_S = 120


@contextmanager
def config_file(spill: Path, *, wanted: bool) -> Iterator[str]:
    """Yields the path of a temporary file that configures the MCP server, then deletes it.

    The path is "" if the file is not `wanted`.
    """
    if not wanted:
        yield ""
        return
    # Claude Code waits for a server that is always loaded, before the first turn.
    server = {"type": "stdio", **_command(), "alwaysLoad": True}
    claim_session_folder(spill)
    path = spill / _FILE
    try:
        with create_file(path) as file:
            file.write(json.dumps({"mcpServers": {SERVER: server}}).encode())
        yield str(path)
    finally:
        path.unlink(missing_ok=True)


def codex_args(*, wanted: bool) -> tuple[str, ...]:
    """Returns the arguments that configure the MCP server for Codex."""
    if not wanted:
        return ()
    settings = {
        **_command(),
        "env_vars": _VARIABLES,
        "tool_timeout_sec": _TOOL_TIMEOUT_S,
        # Codex waits for it before the first turn; otherwise that turn would have no tools of it.
        "required": True,
        "startup_timeout_sec": _STARTUP_TIMEOUT_S,
        # No person can approve a call.
        "default_tools_approval_mode": "approve",
    }
    # JSON strings, numbers and lists of strings are TOML, too.
    pairs = [f"mcp_servers.{SERVER}.{name}={json.dumps(one)}" for name, one in settings.items()]
    return tuple(part for pair in pairs for part in ("-c", pair))


def _command() -> dict[str, str | list[str]]:
    return {"command": sys.executable, "args": ["-P", "-m", "leadhand", "mcp"]}
