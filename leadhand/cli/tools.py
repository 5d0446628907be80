"""`leadhand tools`: lists the tools, shows the arguments of one, and calls one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.cli.options import child_options, pairs_of
from leadhand.cli.render.tables import echo_json, places_table

if TYPE_CHECKING:
    from leadhand.contract.submissions import ParentEnd
    from leadhand.graphs.documents import GraphDocument
    from leadhand.models.views.fleet import ToolParameter, ToolView

_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")


@click.group("tools", cls=Group, invoke_without_command=True)
@_JSON
@click.pass_context
def tools_command(context: click.Context, *, as_json: bool) -> int:
    """List the tools with kinds, arguments and places."""
    if context.invoked_subcommand is not None:
        return 0
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        tools = client.tools()
    if as_json:
        echo_json({"items": [tool.model_dump(mode="json") for tool in tools]})
    else:
        click.echo("\n".join(tool_lines(tools)))
    return 0


@tools_command.command("show")
@click.argument("name")
@_JSON
def tools_show_command(*, name: str, as_json: bool) -> int:
    """Show the tool NAME with the types and descriptions of its arguments."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.fleet_text import tool_page

    with open_client(needs_worker=True) as client:
        tool = find_tool(client.tools(), name)
    if as_json:
        echo_json(tool)
    else:
        for line in tool_page(tool):
            click.echo(line)
    return 0


@tools_command.command("call")
@click.argument("name")
@click.option(
    "--arg",
    "arguments",
    metavar="KEY=VALUE",
    multiple=True,
    help="An argument: text where the tool takes a text, else JSON.",
)
@click.option("--cwd", metavar="DIR", help="The folder to work in (the current one).")
@click.option("--timeout", metavar="S", type=float, help="Seconds for the call (60).")
@child_options
@_JSON
def tools_call_command(
    *,
    name: str,
    arguments: tuple[str, ...],
    cwd: str | None,
    timeout: float | None,
    key: str | None,
    on_parent_end: ParentEnd | None,
    as_json: bool,
) -> int:
    """Call the tool NAME and print what it returns.

    The call is a session of one step, with a record, limits and a deadline as in any other one.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.graph_text import call_summary
    from leadhand.cli.running import wait_and_show

    given = dict(pairs_of(arguments, "--arg"))
    with open_client(needs_worker=True) as client:
        document = call_document(client.tools(), name, given, cwd=cwd, timeout_s=timeout)
        session = client.submit(document, key, on_parent_end=on_parent_end)
        return wait_and_show(client, session, as_json=as_json, summary=call_summary, is_value=True)


def tool_lines(tools: list[ToolView]) -> list[str]:
    """Formats the table of tools; below each, where it cannot be used and why."""
    if not tools:
        return ["no worker is running; start one with `leadhand worker`"]
    head = ["TOOL", "KIND", "ARGUMENTS", "USABLE AT", "ABOUT"]
    rows = [
        [tool.name, tool.kind, _arguments(tool), " ".join(tool.usable_at) or "nowhere", tool.about]
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


def find_tool(tools: Sequence[ToolView], name: str) -> ToolView:
    """Returns the tool of that name. Raises ClickException with the nearest name if unknown."""
    from leadhand.models.suggestions import nearest

    known = {tool.name: tool for tool in tools}
    if name in known:
        return known[name]
    near = nearest(name, known)
    hint = f"did you mean {near!r}?" if near is not None else "`leadhand tools` lists them"
    raise click.ClickException(f"no worker has a tool {name!r}; {hint}")


def call_document(
    tools: Sequence[ToolView],
    name: str,
    given: Mapping[str, str],
    *,
    cwd: str | None,
    timeout_s: float | None,
) -> GraphDocument:
    """Builds a graph with one step that calls a tool. Raises ClickException if it is not valid."""
    from pydantic import ValidationError

    from leadhand.graphs.documents import GraphDocument
    from leadhand.models.json_schema import schema_of, typed_value
    from leadhand.models.references import escape, map_texts
    from leadhand.models.validation_messages import first_error
    from leadhand.run import working_folder

    # Without any tool the workers are still starting: the call itself then checks everything.
    schema = find_tool(tools, name).input_schema if tools else {}
    arguments = {key: typed_value(text, schema_of(schema, key)) for key, text in given.items()}
    step = {
        "name": name.rpartition(":")[2],
        "tool": name,
        "arguments": map_texts(arguments, escape),
        **({} if timeout_s is None else {"timeout_s": timeout_s}),
    }
    fields = {"name": name, "steps": [step]}
    try:
        return GraphDocument.model_validate({**fields, "cwd": working_folder(cwd)})
    except ValidationError as error:
        raise click.ClickException(first_error(error, GraphDocument)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None
