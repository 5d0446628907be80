"""`leadhand rerun`: runs the document of a session again."""

from __future__ import annotations

import click

from leadhand.cli.env_options import env_options
from leadhand.cli.key_values import pairs_of


@click.command("rerun")
@click.argument("session")
@click.option("--task", metavar="TEXT", help="Another task of a loop, or request of a plan.")
@click.option(
    "--checker",
    "checkers",
    metavar="CHECKER",
    multiple=True,
    help="A checker as of `leadhand spawn`, in place of the old ones; may be repeated.",
)
@click.option("--agent", metavar="NAME", help="The agent that does the work.")
@click.option(
    "--set",
    "inputs",
    metavar="INPUT=VALUE",
    multiple=True,
    help="Another value of an input of a flow or graph.",
)
@click.option("--label", metavar="TEXT", help="The label of the new session.")
@click.option("--key", metavar="TEXT", help="The same key again returns the same session.")
@env_options
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def rerun_command(
    *,
    session: str,
    task: str | None,
    checkers: tuple[str, ...],
    agent: str | None,
    inputs: tuple[str, ...],
    label: str | None,
    key: str | None,
    as_json: bool,
) -> int:
    """Run what SESSION was started with again, as a new session.

    Nothing of its work is copied; `leadhand fork` copies it.
    """
    from leadhand.cli.commands.steps.made import show_made
    from leadhand.cli.connect import open_client
    from leadhand.cli.loop_options import checker_of

    with open_client(needs_worker=True) as client:
        named = [checker_of(one, client.session(session).cwd) for one in checkers]
        view = client.rerun(
            session,
            task=task,
            checkers=named or None,
            agent=agent,
            inputs=dict(pairs_of(inputs, "--set")) or None,
            label=label,
            idempotency_key=key,
        )
    show_made(view, f"a rerun of {session}", as_json=as_json)
    return 0
