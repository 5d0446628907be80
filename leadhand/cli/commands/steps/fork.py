"""`leadhand fork`: continues from a point of a session in a new one."""

from __future__ import annotations

from typing import Literal

import click

from leadhand.cli.env_options import env_options
from leadhand.cli.key_values import pairs_of


@click.command("fork")
@click.argument("session")
@click.option(
    "--after",
    metavar="STEP",
    help="The last step that counts as done. Without it, where SESSION had come to.",
)
@click.option(
    "--set",
    "inputs",
    metavar="INPUT=VALUE",
    multiple=True,
    help="Another value of an input; the steps that refer to it run again.",
)
@click.option(
    "--tool",
    "tools",
    metavar="NAME=OTHER",
    multiple=True,
    help="Another tool for the step NAME, or in place of the tool NAME, in the steps that run.",
)
@click.option("--agent", metavar="NAME", help="The agent that does the work from here on.")
@click.option(
    "--folder",
    type=click.Choice(["as-is"]),
    help="as-is: work in the folder of SESSION as it is now. Without it, in a git worktree at the"
    " state that SESSION had recorded.",
)
@click.option("--label", metavar="TEXT", help="The label of the new session.")
@click.option("--key", metavar="TEXT", help="The same key again returns the same session.")
@env_options
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def fork_command(
    *,
    session: str,
    after: str | None,
    inputs: tuple[str, ...],
    tools: tuple[str, ...],
    agent: str | None,
    folder: Literal["as-is"] | None,
    label: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Continue from a point of SESSION in a new session.

    SESSION stays as it is, and may have any status. The results up to the point are copied, and
    cost nothing again. STEP is named as the POSITION of `leadhand resume --after`.
    """
    from leadhand.cli.commands.steps.made import show_made
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.fork(
            session,
            after,
            inputs=dict(pairs_of(inputs, "--set")) or None,
            tools=dict(pairs_of(tools, "--tool")) or None,
            agent=agent,
            folder=folder,
            label=label,
            idempotency_key=key,
        )
    at = f" after {after}" if after else ""
    show_made(view, f"forked from {session}{at}", as_json=as_json)
    return 0
