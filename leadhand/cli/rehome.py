"""`leadhand rehome`: moves a session to another place."""

from __future__ import annotations

import click


@click.command("rehome")
@click.argument("session")
@click.argument("place")
def rehome_command(*, session: str, place: str) -> int:
    """Bind SESSION to another PLACE, with all that waits in it.

    For a place that is gone, or has too much to do. The working folder must be there under the
    same path; what runs is settled where it is. `leadhand show` names a place without a worker.
    """
    from leadhand.cli.connecting import connected

    with connected() as client:
        view = client.rehome(session, place)
    click.echo(f"session {session} is {view.status} at {view.place}")
    for note in view.notes:
        click.echo(f"leadhand: {note}", err=True)
    return 0
