"""`leadhand exit`: lets a doer or checker end its session because the task cannot succeed."""

from __future__ import annotations

import click


@click.command("exit")
@click.argument("reason")
def exit_command(*, reason: str) -> int:
    """End the session that this command runs in, with REASON.

    For doers and checkers: no new step starts, and the session's result has the reason.
    LEADHAND_SESSION, LEADHAND_URL and LEADHAND_TOKEN are in their environment.
    """
    from leadhand.cli.connect import open_client
    from leadhand.settings import ClientSettings

    session = ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: only a doer or checker inside a session can exit it;"
            " from outside use `leadhand stop ID` or `leadhand abort ID`"
        )
    if not reason.strip():
        raise click.ClickException("REASON is empty; say why this path will not work")
    with open_client(needs_worker=True) as client:
        view = client.exit(session, reason)
    click.echo(f"session {view.id} is {view.status}: {reason}")
    return 0
