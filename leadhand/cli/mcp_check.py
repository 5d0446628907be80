"""Checks that agents get the tools over MCP: starts the server as they do and calls a tool."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any, Literal, NamedTuple

from leadhand.local.services import read_run
from leadhand.local.user_state import state_folder
from leadhand.models.text import plain
from leadhand.settings import ClientSettings, environment

#: Seconds that the server has to start and answer; the machine may be busy.
_PATIENCE_S = 60.0
#: A tool that only reads and works outside of a session.
_TOOL = "cb_status"
_VERSION = "2025-06-18"
_REQUESTS: tuple[dict[str, Any], ...] = (
    {"id": 1, "method": "initialize", "params": {
        "protocolVersion": _VERSION, "capabilities": {},
        "clientInfo": {"name": "leadhand doctor", "version": "1"}}},
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
    {"id": 3, "method": "tools/call", "params": {"name": _TOOL, "arguments": {}}},
)  # fmt: skip


class Finding(NamedTuple):
    """The result of one check."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    text: str
    mend: str = ""


def mcp_finding(url: str, token: str | None) -> Finding:
    """Checks whether the tools over MCP work, with the interpreter of the user's services."""
    env = environment() | {"LEADHAND_URL": url, "LEADHAND_TOKEN": token or ""}
    python = _interpreter()
    mend = f"install Leadhand anew for {python}: its dependencies are not complete"
    command = [python, "-P", "-m", "leadhand", "mcp"]
    try:
        process = subprocess.Popen(  # noqa: S603 - an argv, no shell
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    except OSError as error:
        return Finding("fail", "mcp", f"{python}: {error.strerror}", mend)
    clock = threading.Timer(_PATIENCE_S, process.kill)
    clock.start()
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            listed, called = _responses(process.stdin, process.stdout)
        except (OSError, ValueError, KeyError):
            process.kill()
            last = process.stderr.read().strip().rpartition("\n")[2]
            why = plain(last, most=400) or f"no response within {_PATIENCE_S:g} s"
            return Finding("fail", "mcp", f"agents get no tools of Leadhand: {why}", mend)
        finally:
            clock.cancel()
            process.kill()
    if called.get("isError"):
        why = plain(str(called["content"][0]["text"]), most=400)
        return Finding("fail", "mcp", f"the tool {_TOOL} failed: {why}")
    return Finding("ok", "mcp", f"agents get {len(listed['tools'])} tools of Leadhand")


def _interpreter() -> str:
    """The interpreter with which workers start the server; of a fleet it is this one."""
    if ClientSettings.from_env().url is not None:
        return sys.executable
    return read_run(state_folder(environment())).get("python") or sys.executable


def _responses(requests: IO[str], lines: IO[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Send the requests and return the results of the last two."""
    for request in _REQUESTS:
        requests.write(json.dumps({"jsonrpc": "2.0", **request}) + "\n")
    requests.flush()
    found: dict[int, dict[str, Any]] = {}
    for message in _messages(lines):
        if "id" in message and "method" not in message:
            found[message["id"]] = message["result"]
        if {2, 3} <= found.keys():
            return found[2], found[3]
    raise ValueError("the server ended")


def _messages(lines: IO[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        message = json.loads(line)
        if isinstance(message, dict):
            yield message
