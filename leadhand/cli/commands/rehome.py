"""`leadhand rehome`: moves a session to another place."""

from __future__ import annotations

import click


@click.command("rehome")
@click.argument("session")
@click.argument("place")
def rehome_command(*, session: str, place: str) -> int:
    """Move SESSION and its waiting steps to another PLACE.

    For a place that is gone or overloaded. The working folder must exist there under the same path.
    Running steps finish where they are. `leadhand show` warns of a place without a worker.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.rehome(session, place)
    click.echo(f"session {session} is {view.status} at {view.place}")
    for note in view.notes:
        click.echo(f"leadhand: {note}", err=True)
    return 0
