"""`leadhand tools`: lists the tools with their arguments and places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.render.tables import echo_json, places_table

if TYPE_CHECKING:
    from leadhand.models.views import ToolParameter, ToolView


@click.command("tools")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def tools_command(*, as_json: bool) -> int:
    """List the tools with arguments and places."""
    from leadhand.cli.connect import open_client

    with open_client() as client:
        tools = client.tools()
    if as_json:
        echo_json({"items": [tool.model_dump(mode="json") for tool in tools]})
    else:
        click.echo("\n".join(tool_lines(tools)))
    return 0


def tool_lines(tools: list[ToolView]) -> list[str]:
    """The table of tools; below each, the places where it cannot be used and why."""
    if not tools:
        return ["no worker is running; start one with `leadhand worker`"]
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
    """The parameter with its annotation; an optional one is in brackets."""
    annotation = f": {parameter.annotation}" if parameter.annotation else ""
    text = f"{parameter.name}{annotation}"
    return text if parameter.required else f"[{text}]"
