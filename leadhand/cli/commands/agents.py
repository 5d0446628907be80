"""`leadhand agents`: lists the agents with the places that have them, and tries one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.cli.render.tables import echo_json, places_table
from leadhand.cli.try_agent import try_command
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views.fleet import AgentView, WorkerView


@click.group("agents", cls=Group, invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
@click.pass_context
def agents_command(context: click.Context, *, as_json: bool) -> int:
    """List the agents, their places and MCP tools; or try one.

    `leadhand agents try NAME` lets a worker run it once.
    """
    if context.invoked_subcommand is not None:
        return 0
    from leadhand.cli.connect import open_client, reach
    from leadhand.cli.mcp_check import mcp_finding

    with reach(needs_worker=True) as (url, token), open_client(needs_worker=True) as client:
        agents, workers = client.agents(), client.workers()
        tools = mcp_finding(url, token)
    if as_json:
        why_not = None if tools.level == "ok" else tools.text
        echo_json(
            {
                "items": [agent.model_dump(mode="json") for agent in agents],
                "mcp": {"works": why_not is None, "why_not": why_not},
            }
        )
    else:
        lines = [*agent_lines(agents), *fault_lines(workers), f"tools over MCP: {tools.text}"]
        click.echo("\n".join(lines))
    return 0


def agent_lines(agents: list[AgentView]) -> list[str]:
    """Formats the table of agents; below each, where it cannot be used and why."""
    if not agents:
        return ["no worker is running; start one with `leadhand worker`"]
    head = ["AGENT", "KIND", "USABLE AT", "COMMAND"]
    rows = [
        [
            f"{agent.name} (default)" if agent.default else agent.name,
            agent.kind,
            " ".join(agent.usable_at) or "nowhere",
            agent.command,
        ]
        for agent in agents
    ]
    return places_table(head, rows, [agent.why_not for agent in agents])


def fault_lines(workers: list[WorkerView]) -> list[str]:
    """Formats the errors in workers' agents files that concern no single agent, each once."""
    faults = (
        f"at {plain(worker.place)}: {plain(fault.text, most=400)}"
        for worker in workers
        for fault in worker.agents_faults
        if fault.agent is None
    )
    return list(dict.fromkeys(faults))


agents_command.add_command(try_command)
