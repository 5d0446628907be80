"""`leadhand rm`: forgets sessions that have ended."""

from __future__ import annotations

import click


@click.command("rm")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
def rm_command(*, sessions: tuple[str, ...]) -> int:
    """Forget sessions that have ended, with all that is kept of them."""
    from leadhand.cli.connecting import connected

    with connected() as client:
        for session in dict.fromkeys(sessions):
            client.delete(session)
            click.echo(f"session {session} is forgotten")
    return 0
