"""`leadhand exit`: what a doer or checker calls when this path will not work."""

from __future__ import annotations

import click


@click.command("exit")
@click.argument("reason")
def exit_command(*, reason: str) -> int:
    """End the session around this command by intent, with REASON.

    For doers and checkers: nothing new starts, and whoever waits for the session reads the
    reason. LEADHAND_SESSION, LEADHAND_URL and LEADHAND_TOKEN are in their environment.
    """
    from leadhand.cli.connecting import connected
    from leadhand.settings import ClientSettings

    session = ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: only a doer or checker inside a session can exit it;"
            " from outside use `leadhand stop ID` or `leadhand abort ID`"
        )
    if not reason.strip():
        raise click.ClickException("REASON is empty; say why this path will not work")
    with connected() as client:
        view = client.exit(session, reason)
    click.echo(f"session {view.id} is {view.status}: {reason}")
    return 0
