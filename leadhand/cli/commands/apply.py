"""`leadhand apply`: brings the work of a session into the folder that it was started in."""

from __future__ import annotations

import click

from leadhand.cli.render.tables import echo_json


@click.command("apply")
@click.argument("session")
@click.option("--force", is_flag=True, help="Also work that was not accepted.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def apply_command(*, session: str, force: bool, as_json: bool) -> int:
    """Bring the work of SESSION into the folder it came from.

    For sessions that were started with --worktree.

    In a git repository the branch that was checked out there is fast-forwarded, or the session's
    branch is merged into it. It must be checked out, without uncommitted changes. In a plain folder
    the changed files are copied back, unless one of them has changed there too. Otherwise nothing
    is changed, and the command says why.
    """
    from leadhand.cli.connect import open_client

    with open_client() as client:
        started = client.apply(session, force=force)
        ended = client.wait(started.session)
        found = client.session(session).worktree
    done = ended.status == "completed"
    why = ended.reason.text if ended.reason is not None else f"session {started.session} failed"
    text = (found and (found.applied if done else found.refused)) or ("" if done else why)
    if as_json:
        echo_json({"session": session, "applied": done, "text": text})
    else:
        click.echo(text if done else f"not applied: {text}")
    return 0 if done else 3
