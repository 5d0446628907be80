"""`leadhand show`: one session, with each of its iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.tables import echo_json

if TYPE_CHECKING:
    from leadhand.client import Client
    from leadhand.views import LedgerEntry


@click.command("show")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def show_command(*, session: str, as_json: bool) -> int:
    """Show SESSION, and the verdicts and feedback of its iterations."""
    from leadhand.cli.connecting import connected
    from leadhand.cli.portraits import portrait

    with connected() as client:
        view = client.session(session)
        ledger = list(whole_ledger(client, session))
    if as_json:
        entries = [entry.model_dump(mode="json") for entry in ledger]
        echo_json({"session": view.model_dump(mode="json"), "ledger": entries})
        return 0
    for line in portrait(view, ledger):
        click.echo(line)
    return 0


def whole_ledger(client: Client, session: str) -> Iterator[LedgerEntry]:
    """Each iteration, over as many pages as there are."""
    page = client.ledger(session)
    yield from page.items
    while page.next is not None:
        page = client.ledger(session, cursor=page.next)
        yield from page.items
