"""`leadhand retry`: runs a step of a session again."""

from __future__ import annotations

import click


@click.command("retry")
@click.argument("session")
@click.argument("step")
def retry_command(*, session: str, step: str) -> int:
    """Run STEP of SESSION again, and all that depends on it.

    SESSION is stopped or failed; its other finished work is kept. STEP is named as the POSITION of
    `leadhand resume --after`. In a loop the steps beside it run again, too.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.retry(session, step)
    follow = f"follow it with: leadhand watch {session}"
    click.echo(f"session {session} is {view.status}, from {step} on; {follow}")
    return 0
