"""`leadhand hint`: sends a message to a session's next turn."""

from __future__ import annotations

import sys

import click


@click.command("hint", context_settings={"ignore_unknown_options": True})
@click.argument("session")
@click.argument("text")
def hint_command(*, session: str, text: str) -> int:
    """Send TEXT to SESSION, whose next turn begins with it.

    `-` as the TEXT reads standard input. A turn that runs already does not get it. `leadhand inbox
    SESSION` shows which turn did.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        message = client.hint(session, sys.stdin.read() if text == "-" else text)
        view = client.session(session)
    click.echo(f"message {message.id} is in the inbox of session {session}")
    for line in view.needs_attention:
        click.echo(f"attention: {line}", err=True)
    return 0
