"""`leadhand rm`: deletes sessions that have ended, and with --force others."""

from __future__ import annotations

import click


@click.command("rm")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--force",
    is_flag=True,
    help="First abort sessions that have not ended; leave their own folders.",
)
def rm_command(*, sessions: tuple[str, ...], force: bool) -> int:
    """Delete ended sessions with all their data."""
    from leadhand.cli.connect import open_client

    with open_client() as client:
        for session in dict.fromkeys(sessions):
            still_ends = client.delete(session, force=force) is not None
            state = "is being aborted, and is deleted then" if still_ends else "is deleted"
            click.echo(f"session {session} {state}")
    return 0
