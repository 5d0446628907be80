"""`leadhand rm`: forgets sessions that have ended, and by force others."""

from __future__ import annotations

import click


@click.command("rm")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Abort those first that have not ended.")
def rm_command(*, sessions: tuple[str, ...], force: bool) -> int:
    """Forget ended sessions, with all that is kept of them."""
    from leadhand.cli.connecting import connected

    with connected() as client:
        for session in dict.fromkeys(sessions):
            still_ends = client.delete(session, force=force) is not None
            said = "is being aborted, and forgotten then" if still_ends else "is forgotten"
            click.echo(f"session {session} {said}")
    return 0
