"""`leadhand poll`: how far sessions are, in one look."""

from __future__ import annotations

import click

from leadhand.cli.render.tables import echo_json, table


@click.command("poll")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def poll_command(*, sessions: tuple[str, ...], as_json: bool) -> int:
    """Print what sessions do now, without waiting for them.

    Results are never printed. TOOL CALLS are the steps carried out so far: each called an agent, a
    command or a tool once.
    To block until sessions have ended, use `leadhand wait`.
    """
    from dataclasses import asdict

    from leadhand.cli.connect import open_client
    from leadhand.cli.render.live_text import elapsed
    from leadhand.state import poll

    with open_client(needs_worker=True) as client:
        found = [poll(session, client=client) for session in dict.fromkeys(sessions)]
    if as_json:
        dumps = [asdict(one) for one in found]
        echo_json(dumps[0] if len(dumps) == 1 else {"sessions": dumps})
        return 0
    rows = [
        [one.id, one.status, elapsed(round(one.elapsed * 1000)), one.tool_calls, one.activity]
        for one in found
    ]
    for line in table(["ID", "STATUS", "ELAPSED", "TOOL CALLS", "ACTIVITY"], rows):
        click.echo(line)
    return 0
