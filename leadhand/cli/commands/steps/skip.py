"""`leadhand skip`: continues without a step."""

from __future__ import annotations

import click


@click.command("skip")
@click.argument("session")
@click.argument("step")
@click.option("--reason", metavar="TEXT", help="Why; kept with the step.")
def skip_command(*, session: str, step: str, reason: str | None) -> int:
    """Skip STEP of SESSION; what depends on it continues without it.

    A step that has not run is skipped at any time, one that failed in a stopped or failed SESSION,
    which resumes with that. One that runs is refused. STEP is named as the POSITION of
    `leadhand resume --after`; a loop or phase is skipped as a whole.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.skip(session, step, reason)
    ways = {
        "stopped": f"; continue with: leadhand resume {session}",
        "failed": f"; continue with: leadhand resume {session}",
        "active": f"; follow it with: leadhand watch {session}",
        "waiting": f"; follow it with: leadhand watch {session}",
    }
    click.echo(f"{step} is skipped; session {session} is {view.status}{ways.get(view.status, '')}")
    return 0
