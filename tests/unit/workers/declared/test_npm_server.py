"""A real MCP server from npm: listed, checked and called."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real_agents import BIN
from tests.unit.workers.declared.tool_servers import Servers
from tests.unit.workers.declared.tool_world import ToolWorld, why

PROGRAM = BIN / "mcp-server-everything"
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not here"),
    pytest.mark.skipif(not PROGRAM.exists(), reason="`make agents` installs the server from npm"),
]


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Servers]:
    world = ToolWorld(tmp_path)
    world.write(f'[mcp.everything]\ncommand = "{PROGRAM}"\nargs = ["stdio"]\n')
    servers = Servers(world)
    yield servers
    servers.running.stop()


def test_the_tools_of_a_server_from_npm_are_listed_checked_and_called(servers: Servers) -> None:
    found = servers.ready("everything.echo")
    assert found["everything.echo"].input_schema["required"] == ["message"]
    assert servers.call("everything.echo", message="hello").value == "Echo: hello"
    total = servers.call("everything.get-sum", a="2", b=3)
    assert "5" in total.text
    assert "argument 'message' is missing" in why(servers.call("everything.echo"))
    image: Any = servers.call("everything.get-tiny-image").value
    assert {block["type"] for block in image["content"]} == {"text", "image"}
    late = servers.call(
        "everything.trigger-long-running-operation", duration=60, steps=2, timeout_s=1.0
    )
    assert "timed out after 1 seconds" in why(late)
    assert servers.call("everything.echo", message="again").word == "succeeded"
