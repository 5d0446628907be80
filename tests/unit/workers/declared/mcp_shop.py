"""An MCP server for tests, over stdio, or over HTTP at the port that the first argument names."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, TextContent, ToolAnnotations

shop = MCPServer("shop")
_AGAIN = ToolAnnotations(idempotent_hint=True)


@shop.tool()
def add(first: int, second: int = 1) -> int:
    """Adds two numbers."""
    return first + second


@shop.tool()
def hello(name: str) -> CallToolResult:
    """Greets."""
    return CallToolResult(content=[TextContent(type="text", text=f"hello {name}")])


@shop.tool()
def refuse(why: str) -> CallToolResult:
    """Fails."""
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


@shop.tool()
def decline() -> dict[str, object]:
    """Returns that it did not succeed."""
    return {"success": False, "error": "sold out"}


@shop.tool()
def say(text: str, *, structured: bool = False) -> CallToolResult:
    """Returns a text, and another value as structured content."""
    value = {"structured": True} if structured else None
    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=value)


@shop.tool()
async def hang(note: str) -> str:
    """Writes a line, then another one when it is cancelled."""
    with Path(note).open("a") as file:
        file.write("called\n")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        with Path(note).open("a") as file:
            file.write("cancelled\n")
        raise
    return "late"


def _die(note: str) -> str:
    with Path(note).open("a") as file:
        file.write("called\n")
    if len(Path(note).read_text().splitlines()) < 2:
        sys.stderr.write("out of ink\n")
        sys.stderr.flush()
        os._exit(3)
    return "done"


@shop.tool()
def die(note: str) -> str:
    """Ends the server at its first call."""
    return _die(note)


@shop.tool(annotations=_AGAIN)
def die_safely(note: str) -> str:
    """The same, but a second call changes nothing more."""
    return _die(note)


@shop.tool()
def environment(name: str) -> str:
    """The value of a variable."""
    return os.environ.get(name, "none")


@shop.tool()
async def extend(context: Context) -> str:
    """Adds a tool to the server."""

    def late() -> str:
        """A tool that was added later."""
        return "here"

    shop.add_tool(late)
    await context.notify_tools_changed()
    return "added"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        shop.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
    else:
        shop.run()
