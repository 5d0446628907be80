"""`leadhand stop`, `resume` and `abort`: control a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from leadhand.cli.budget_options import budget_options, pop_budget

if TYPE_CHECKING:
    from leadhand.client.client import Client

#: Seconds to wait for a control to take effect; after that it completes by itself.
_PATIENCE_S = 90.0


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
    from leadhand.cli.leave_running import leaving_running
    from leadhand.errors import WaitTimedOut

    try:
        with leaving_running([session], state):
            return client.wait(session, _PATIENCE_S).status
    except WaitTimedOut as error:
        return error.status
