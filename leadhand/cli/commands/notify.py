"""`leadhand notify`: sends a message of a child session to its parent."""

from __future__ import annotations

import sys

import click


@click.command("notify", context_settings={"ignore_unknown_options": True})
@click.argument("text")
@click.option("--failure", is_flag=True, help="Mark the message as a failure that needs a person.")
@click.option(
    "--pr", "pr_number", type=click.IntRange(1), metavar="N", help="The number of a pull request."
)
@click.option(
    "--session",
    metavar="ID",
    help="The session that sends it; by default that of this command.",
)
def notify_command(*, text: str, failure: bool, pr_number: int | None, session: str | None) -> int:
    """Send TEXT from a child session to its parent.

    For doers and checkers: the parent's next turn begins with it. It does not end the child. `-` as
    the TEXT reads standard input.
    """
    from leadhand.cli.connect import open_client
    from leadhand.settings import ClientSettings

    session = session or ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: name the session that reports with --session ID"
        )
    with open_client(needs_worker=True) as client:
        message = client.notify_parent(
            session,
            "failure" if failure else "success",
            sys.stdin.read() if text == "-" else text,
            pr_number=pr_number,
        )
    click.echo(f"message {message.id} is in the inbox of the parent session")
    return 0
