"""`leadhand stop`, `resume`, `abort`, `retry` and `skip`; `rehome`, `rm` and what is noted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

import click

from leadhand.cli.connect import shows
from leadhand.cli.options import budget_options, pop_budget
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.session import SessionView

#: Seconds to wait for a control to take effect; after that it completes by itself.
_PATIENCE_S = 90.0
#: The exit code if a session was not deleted because a folder of it has work.
_KEPT = 3


@click.command("stop")
@click.argument("session")
def stop_command(*, session: str) -> int:
    """Stop SESSION so that it can be resumed.

    No new step starts, and running steps are handed back.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        client.stop(session)
        status = _wait_for_control(client, session, "is being stopped")
        _show_receipt(client, session)
    if status == "stopped":
        click.echo(f"session {session} is stopped; continue with: leadhand resume {session}")
    else:
        click.echo(f"session {session} is {status}")
    return 0


@click.command("resume")
@click.argument("session")
@click.option(
    "--max-iterations", type=int, metavar="N", help="A new limit, if the old one was reached."
)
@click.option(
    "--as",
    "as_",
    type=click.Choice(["old", "new"]),
    help="For a flow: run the version that it was started with (old), or that of its file (new).",
)
@click.option(
    "--after",
    metavar="POSITION",
    help="The last point that counts as done; the steps after it run again.",
)
@click.option(
    "--accept-protected",
    is_flag=True,
    help="Take protected files as they are now. Without it, what a doer has changed is put back.",
)
@budget_options
def resume_command(
    *,
    session: str,
    accept_protected: bool,
    max_iterations: int | None,
    as_: Literal["old", "new"] | None,
    after: str | None,
    **limits: Any,
) -> int:
    """Resume a stopped or failed SESSION.

    It continues where it was, or after POSITION, an earlier point: an address (outer~1[2]/ask), an
    address without runs or iterations (the newest), a label, or positions counted from 0 (1[2]/0).
    A limit of its budget that is used up has to be raised.
    """
    from pydantic import ValidationError

    from leadhand.cli.connect import open_client
    from leadhand.models.validation_messages import first_error

    budget = pop_budget(limits)
    with open_client(needs_worker=True) as client:
        try:
            view = client.resume(
                session,
                max_iterations,
                after=after,
                budget=budget or None,
                as_=as_,
                accept_protected=accept_protected,
            )
        except ValidationError as error:
            raise click.ClickException(f"budget.{first_error(error)}") from None
    after = f" after {view.resumed_after}" if after and view.resumed_after else ""
    follow = f"follow it with: leadhand watch {session}"
    click.echo(f"session {session} is {view.status}{after}; {follow}")
    for note in view.notes if as_ == "new" else ():
        click.echo(f"note: {note}", err=True)
    return 0


@click.command("abort")
@click.argument("session")
@click.option("--reason", metavar="TEXT", help="Why; kept with the session.")
def abort_command(*, session: str, reason: str | None) -> int:
    """End SESSION by force; it cannot be resumed."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        client.abort(session, reason)
        status = _wait_for_control(client, session, "is being aborted")
        _show_receipt(client, session)
    click.echo(f"session {session} is {status}")
    return 0


@click.command("retry")
@click.argument("session")
@click.argument("step")
@shows("retry", needs_worker=True)
def retry_command(view: SessionView, *, session: str, step: str) -> Iterator[str]:
    """Run STEP of SESSION again, and all that depends on it.

    SESSION is stopped or failed; its other finished work is kept. STEP is named as the POSITION of
    `leadhand resume --after`. In a loop the steps beside it run again, too.
    """
    follow = f"follow it with: leadhand watch {session}"
    yield f"session {session} is {view.status}, from {step} on; {follow}"


@click.command("skip")
@click.argument("session")
@click.argument("step")
@click.option("--reason", metavar="TEXT", help="Why; kept with the step.")
@shows("skip", needs_worker=True)
def skip_command(view: SessionView, *, session: str, step: str, **_: object) -> Iterator[str]:
    """Skip STEP of SESSION; what depends on it continues without it.

    A step that has not run is skipped at any time, one that failed in a stopped or failed SESSION,
    which resumes with that. One that runs is refused. STEP is named as the POSITION of
    `leadhand resume --after`; a loop or phase is skipped as a whole.
    """
    ways = {
        "stopped": f"; continue with: leadhand resume {session}",
        "failed": f"; continue with: leadhand resume {session}",
        "active": f"; follow it with: leadhand watch {session}",
        "waiting": f"; follow it with: leadhand watch {session}",
    }
    yield f"{step} is skipped; session {session} is {view.status}{ways.get(view.status, '')}"


@click.command("rehome")
@click.argument("session")
@click.argument("place")
@shows("rehome", needs_worker=True)
def rehome_command(view: SessionView, *, session: str, **_: object) -> Iterator[str]:
    """Move SESSION and its waiting steps to another PLACE.

    For a place that is gone or overloaded. The working folder must exist there under the same path.
    Running steps finish where they are. `leadhand show` warns of a place without a worker.
    """
    yield f"session {session} is {view.status} at {view.place}"
    for note in view.notes:
        click.echo(f"leadhand: {note}", err=True)


#: How each result of an attempt that was running is shown.
_BECAME = {
    "released": "handed back",
    "settled": "had just finished, and counts",
    "expired": "was lost with its worker",
    "retried": "had just failed",
    "running": "still runs",
}


def _show_receipt(client: Client, session: str) -> None:
    """Print one line for each attempt that was running: its step, worker and result."""
    for met in client.receipt(session).items:
        where = f"{met.session} {met.address} on {met.worker}"
        click.echo(f"{where}: {_BECAME.get(met.became, met.became)}")


def _wait_for_control(client: Client, session: str, state: str) -> str:
    """Wait for the control to take effect; return the session's status."""
    from leadhand.cli.running import leaving_running
    from leadhand.errors import WaitTimedOut

    try:
        with leaving_running([session], state):
            return client.wait(session, _PATIENCE_S).status
    except WaitTimedOut as error:
        return error.status


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
    from leadhand.cli.worktree import clean_folders

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


@click.command("rename")
@click.argument("session")
@click.argument("title")
@shows("annotate", needs_worker=False)
def rename_command(view: SessionView, *, session: str, **_: object) -> Iterator[str]:
    """Give SESSION a TITLE for lists; an empty one removes it."""
    yield f"session {session} is called {plain(view.title)!r}"


@click.command("note")
@click.argument("session")
@click.argument("note", metavar="TEXT")
@shows("annotate", needs_worker=False)
def note_command(view: SessionView, *, session: str, **_: object) -> Iterator[str]:
    """Put a note with TEXT on SESSION; an empty one removes it."""
    yield f"session {session} has {'a' if view.note else 'no'} note"


@click.command("archive")
@click.argument("sessions", nargs=-1, required=True)
@click.option("--undo", is_flag=True, help="Show them again.")
def archive_command(*, sessions: tuple[str, ...], undo: bool) -> int:
    """Hide SESSIONS from lists; nothing is deleted.

    `leadhand ls --archived` shows them. A session at work is refused, and one that is resumed is
    shown again. Retention deletes archived sessions as all others.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        for session in sessions:
            client.annotate(session, archived=not undo)
            click.echo(f"session {session} is {'shown again' if undo else 'archived'}")
    return 0
