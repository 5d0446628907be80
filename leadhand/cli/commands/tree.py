"""`leadhand tree`: shows a session and all sessions below it."""

from __future__ import annotations

import click

from leadhand.cli.render.tables import echo_json


@click.command("tree")
@click.argument("session")
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def tree_command(*, session: str, limit: int, as_json: bool) -> int:
    """Show SESSION and all sessions below it.

    These are the sessions that its steps, doers and checkers started. Each line has a session's
    name, id and status, how long it took, its cost with that of its children, and why it ended.
    Below them is why SESSION ended, the root cause first.
    """
    from leadhand.cli.commands.ls import name_damaged
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.tree_text import tree_lines

    with open_client(needs_worker=False) as client:
        view = client.tree(session, limit=limit)
    if as_json:
        echo_json(view)
        return 0
    for line in tree_lines(view):
        click.echo(line)
    name_damaged(view.damaged)
    return 0
