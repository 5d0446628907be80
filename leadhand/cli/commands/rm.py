"""`leadhand rm`: deletes sessions that have ended, and with --force others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.client.client import Client

#: The exit code if a session was not deleted because a folder of it has work.
_KEPT = 3


@click.command("rm")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--force",
    is_flag=True,
    help="First abort sessions that have not ended; leave folders with work.",
)
def rm_command(*, sessions: tuple[str, ...], force: bool) -> int:
    """Delete ended sessions with all their data.

    Their own folders, and those of a plan's tasks, are removed if all that they hold is committed
    and merged or applied. Otherwise the folder is named and the session is kept; with --force it is
    deleted, and the folder stays.
    """
    from leadhand.cli.connect import open_client

    code = 0
    with open_client(needs_worker=True) as client:
        for session in dict.fromkeys(sessions):
            if not _remove_folders(client, session) and not force:
                click.echo(f"session {session} is not deleted; --force leaves what was kept")
                code = _KEPT
                continue
            still_ends = client.delete(session, force=force) is not None
            state = "is being aborted, and is deleted then" if still_ends else "is deleted"
            click.echo(f"session {session} {state}")
    return code


def _remove_folders(client: Client, session: str) -> bool:
    """Remove what folders of an ended session hold no work; whether none is left."""
    from leadhand.cli.plans.worktree import clean_folders

    view = client.session(session)
    own = view.worktree
    has_own = own is not None and own.kind is not None and not own.applied
    if not view.ended or not (has_own or view.kind == "plan"):
        return True
    if all(one.cleaned for one in client.worktrees(session)):
        return True
    done = clean_folders(client, session, (), force=False)
    for one in done.failed:
        click.echo(f"kept {one.folder}: {one.kept}")
    return not done.failed
