"""`leadhand tools`: what a tool step can use, what it takes, and where it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.tables import echo_json, places_table

if TYPE_CHECKING:
    from leadhand.views import ToolParameter, ToolView


@click.command("tools")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def tools_command(*, as_json: bool) -> int:
    """List the tools with what they take and where each can be used."""
    from leadhand.cli.connecting import connected

    with connected() as client:
        tools = client.tools()
    if as_json:
        echo_json({"items": [tool.model_dump(mode="json") for tool in tools]})
    else:
        click.echo("\n".join(tool_lines(tools)))
    return 0


def tool_lines(tools: list[ToolView]) -> list[str]:
    """Each tool, and beneath it why it cannot be used where it cannot."""
    if not tools:
        return ["no worker has told of its tools; start one with `leadhand worker`"]
    head = ["TOOL", "ARGUMENTS", "USABLE AT", "ABOUT"]
    rows = [
        [tool.name, _arguments(tool), " ".join(tool.usable_at) or "nowhere", tool.about]
        for tool in tools
    ]
    return places_table(head, rows, [tool.why_not for tool in tools])


def _arguments(tool: ToolView) -> str:
    named = [_argument(parameter) for parameter in tool.parameters]
    return ", ".join([*named, *(["any"] if tool.takes_any else [])]) or "none"


def _argument(parameter: ToolParameter) -> str:
    """One that may be left out is in brackets."""
    annotation = f": {parameter.annotation}" if parameter.annotation else ""
    said = f"{parameter.name}{annotation}"
    return said if parameter.required else f"[{said}]"
