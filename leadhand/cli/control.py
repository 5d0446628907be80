"""`leadhand stop`, `resume` and `abort`: controls of a session from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from leadhand.cli.budgets import budget_options, taken_budget

if TYPE_CHECKING:
    from leadhand.client import Client

#: How long a control is waited for; after that it goes on by itself.
_PATIENCE_S = 90.0


@click.command("stop")
@click.argument("session")
def stop_command(*, session: str) -> int:
    """Stop SESSION so that it can be resumed.

    Nothing new starts, and what runs is handed back.
    """
    from leadhand.cli.connecting import connected

    with connected() as client:
        client.stop(session)
        status = _settled(client, session)
        _show_receipt(client, session)
    if status == "stopped":
        click.echo(f"session {session} is stopped; go on with: leadhand resume {session}")
    else:
        click.echo(f"session {session} is {status}")
    return 0


@click.command("resume")
@click.argument("session")
@click.option(
    "--max-iterations", type=int, metavar="N", help="A new limit, where the old one was reached."
)
@click.option(
    "--as",
    "as_",
    type=click.Choice(["old", "new"]),
    help="Of a flow: by what it was started with (old), or by what its file says now.",
)
@click.option(
    "--after",
    metavar="POSITION",
    help="The last point that counts as done; what comes after it runs anew.",
)
@budget_options
def resume_command(
    *,
    session: str,
    max_iterations: int | None,
    as_: Literal["old", "new"] | None,
    after: str | None,
    **limits: Any,
) -> int:
    """Go on with a stopped or failed SESSION.

    It goes on where it was, or after POSITION, an earlier point: an address (outer~1[2]/ask), the
    same without runs or iterations (the newest), a label, or positions counted from 0 (1[2]/0). A
    limit of its budget that is used up has to be raised.
    """
    from pydantic import ValidationError

    from leadhand.cli.connecting import connected
    from leadhand.complaints import complaint

    budget = taken_budget(limits)
    with connected() as client:
        try:
            view = client.resume(
                session, max_iterations, after=after, budget=budget or None, as_=as_
            )
        except ValidationError as error:
            raise click.ClickException(f"budget: {complaint(error)}") from None
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
    from leadhand.cli.connecting import connected

    with connected() as client:
        client.abort(session, reason)
        status = _settled(client, session)
        _show_receipt(client, session)
    click.echo(f"session {session} is {status}")
    return 0


#: What became of an attempt that a control met, in words.
_BECAME = {
    "released": "handed back",
    "settled": "had just been done, and counts",
    "expired": "was lost with its worker",
    "retried": "had just failed",
    "running": "still runs",
}


def _show_receipt(client: Client, session: str) -> None:
    """What was running, where, and what came of it; one line each."""
    for met in client.receipt(session).items:
        where = f"{met.session} {met.address} on {met.worker}"
        click.echo(f"{where}: {_BECAME.get(met.became, met.became)}")


def _settled(client: Client, session: str) -> str:
    """The session's status once the control has been carried out, or as far as it came."""
    from leadhand.errors import WaitTimedOut

    try:
        return client.wait(session, _PATIENCE_S).status
    except WaitTimedOut as error:
        return error.status
