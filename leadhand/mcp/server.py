"""Serves the tools by the official MCP SDK over standard input and output."""

from __future__ import annotations

import json
import sys
from contextlib import redirect_stdout
from importlib.metadata import version
from typing import Any

from mcp.server import Server
from mcp.server.context import ServerRequestContext
from mcp.server.stdio import stdio_server
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as ToolEntry
from pydantic import BaseModel, ValidationError

from leadhand.client.client import AsyncClient
from leadhand.errors import LeadhandError
from leadhand.mcp.stack_tools import STACK_TOOLS
from leadhand.mcp.tool import Calls, Tool, ToolRefused
from leadhand.mcp.tools import TOOLS
from leadhand.models.suggestions import nearest
from leadhand.models.validation_messages import first_error

#: The name of the server in an agent's configuration: its tools are `mcp__leadhand__...` there.
NAME = "leadhand"
_TOOLS = {**TOOLS, **STACK_TOOLS}
_INSTRUCTIONS = (
    "Leadhand runs sessions: doers work until checkers accept. Inside a session, report about your"
    " own task with report_status, propose more with add_task, and end a task that cannot succeed"
    " with exit. What only a person can decide, ask with ask_human."
    " A workflow of several steps that you carry out yourself is kept by start_workflow."
)


async def serve(client: AsyncClient, session: str | None) -> None:
    """Serve Leadhand's MCP tools over standard input and output until input ends.

    Args:
        client: Calls the API; it is closed here.
        session: The session of the body that started this server; None outside a body.
    """
    async with client:
        server = make_server(Calls(client, session))
        # The SDK diverts the real standard output, so that nothing else is written among the
        # messages; the command line's own stream would hide it.
        with redirect_stdout(sys.__stdout__):
            async with stdio_server() as (reads, writes):
                await server.run(reads, writes, server.create_initialization_options())


def make_server(calls: Calls) -> Server[Any]:
    """Builds the MCP server with all of Leadhand's tools, which work through these calls."""

    async def list_tools(
        context: ServerRequestContext[Any],  # noqa: ARG001 - the SDK's signature
        params: PaginatedRequestParams | None,  # noqa: ARG001
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_entry(name, tool) for name, tool in _TOOLS.items()])

    async def call_tool(
        context: ServerRequestContext[Any],  # noqa: ARG001
        params: CallToolRequestParams,
    ) -> CallToolResult:
        return await _called(calls, params.name, params.arguments or {})

    return Server(
        NAME,
        version=version("leadhand"),
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


async def _called(calls: Calls, name: str, given: dict[str, Any]) -> CallToolResult:
    """Call a tool; an error becomes a result that is marked as an error."""
    tool = _TOOLS.get(name)
    if tool is None:
        near = nearest(name, _TOOLS)
        hint = f"did you mean {near!r}?" if near is not None else f"there are {', '.join(_TOOLS)}"
        return _error(f"{name!r} is no tool of Leadhand; {hint}")
    try:
        result = await tool.call(calls, tool.arguments.model_validate(given))
    except ValidationError as error:
        return _error(first_error(error, tool.arguments))
    except (ToolRefused, LeadhandError) as error:
        return _error(str(error))
    except Exception as error:  # noqa: BLE001 - the edge: an agent gets a sentence
        text = f"{type(error).__name__}: {error}".rstrip(": ")
        return _error(f"internal error of Leadhand, {text}")
    shown = result.model_dump(mode="json") if isinstance(result, BaseModel) else dict(result)
    text = json.dumps(shown, ensure_ascii=False)
    return CallToolResult(content=[TextContent(text=text)], structured_content=shown)


def _entry(name: str, tool: Tool) -> ToolEntry:
    schema = tool.arguments.model_json_schema()
    schema.pop("description", None)
    return ToolEntry(
        name=name,
        description=tool.description,
        input_schema=schema,
        annotations=ToolAnnotations(read_only_hint=tool.reads),
    )


def _error(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)], is_error=True)
