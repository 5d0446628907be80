"""`leadhand logs`: what happened in a session so far, line by line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.client import Client
    from leadhand.views import Event


@click.command("logs")
@click.argument("session")
@click.option("--follow", "-f", is_flag=True, help="Go on until the session has ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event and line.")
def logs_command(*, session: str, follow: bool, as_json: bool) -> int:
    """Print the events of SESSION, the oldest first."""
    from leadhand.cli.connecting import connected
    from leadhand.cli.lines import sentence
    from leadhand.cli.picture import after
    from leadhand.cli.screens import first_picture

    with connected() as client:
        picture = first_picture(client.session(session))
        for event in client.events(session) if follow else all_events(client, session):
            picture = after(picture, event)
            said = event.model_dump_json() if as_json else sentence(picture, event)
            if said is not None:
                click.echo(said)
    return 0


def all_events(client: Client, session: str) -> Iterator[Event]:
    """Each event that is there already, over as many pages as there are."""
    page = client.event_page(session)
    while page.items:
        yield from page.items
        if page.next is None:
            return
        page = client.event_page(session, after=page.next)
