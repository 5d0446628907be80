"""`leadhand logs`: prints the events of a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.cli.render.output_text import OutputLines
    from leadhand.cli.render.progress import Picture
    from leadhand.client.client import Client
    from leadhand.models.views.step import Event


@click.command("logs")
@click.argument("session")
@click.option("--follow", "-f", is_flag=True, help="Continue until the session has ended.")
@click.option(
    "--output",
    "-o",
    is_flag=True,
    help="Also print what doers and checkers write; implies --follow.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event and line.")
def logs_command(*, session: str, follow: bool, output: bool, as_json: bool) -> int:
    """Print the events of SESSION, the oldest first.

    Ctrl-C leaves it running.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.leave_running import following
    from leadhand.cli.render.live import first_picture
    from leadhand.cli.render.output_text import OutputLines
    from leadhand.cli.render.progress import apply_event
    from leadhand.cli.render.session_text import head_line
    from leadhand.client.events import OUTPUT
    from leadhand.client.waiting import IN_EVENTS, reporting_troubles

    with open_client(needs_worker=False) as client, ExitStack() as stack:
        view = client.session(session)
        picture, written = first_picture(view), OutputLines()
        if not as_json:
            click.echo(head_line(view))
        events = all_events(client, session)
        if follow or output:
            stack.enter_context(following(session))
            stack.enter_context(reporting_troubles(client, [session], tell, shown=IN_EVENTS))
            events = client.events(session, output=output)
        for event in events:
            if as_json:
                click.echo(event.model_dump_json())
                continue
            if event.type != OUTPUT:
                picture = apply_event(picture, event)
            for line in _lines(event, picture, written):
                click.echo(line)
        for line in written.rest():
            click.echo(line)
    return 0


def _lines(event: Event, picture: Picture, written: OutputLines) -> Iterable[str]:
    """The lines of an event; `picture` is the session after it."""
    from leadhand.cli.render.live_text import sentence
    from leadhand.client.events import OUTPUT

    if event.type == OUTPUT:
        return written.lines(event)
    text = sentence(picture, event)
    return () if text is None else (text,)


def all_events(client: Client, session: str) -> Iterator[Event]:
    """Yields all events of a session so far, fetched page by page; does not wait for new ones."""
    page = client.event_page(session)
    while page.items:
        yield from page.items
        if page.next is None:
            return
        page = client.event_page(session, after=page.next)
