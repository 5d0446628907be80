"""`leadhand inbox`: shows the messages that a session has got."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from leadhand.cli.render.times import clock_time
from leadhand.models.text import block, plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.inbox import InboxMessage

#: Messages per request, the most that a page may have.
_PAGE = 500


@click.command("inbox")
@click.argument("session", required=False)
@click.option("--unread", is_flag=True, help="Only messages that are not acknowledged.")
@click.option(
    "--take", is_flag=True, help="Acknowledge and show the messages that no turn has got."
)
@click.option("--follow", "-f", is_flag=True, help="Continue until the session has ended.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per message and line.")
def inbox_command(
    *, session: str | None, unread: bool, take: bool, follow: bool, as_json: bool
) -> int:
    """Show messages to SESSION; --take acknowledges them.

    In a doer or checker, SESSION is by default its own. A turn acknowledges the messages that its
    prompt began with. With --take no turn gets them.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.leave_running import following
    from leadhand.client.waiting import reporting_troubles
    from leadhand.settings import ClientSettings

    if take and (follow or unread):
        raise click.UsageError("--take shows what it takes; leave out --follow and --unread")
    session = session or ClientSettings.from_env().session
    if session is None:
        raise click.ClickException("LEADHAND_SESSION not set: name the session, as in: inbox ID")
    shown = False
    with open_client(outlives_attempt=True, needs_worker=True) as client, ExitStack() as stack:
        if follow:
            stack.enter_context(following(session))
            stack.enter_context(reporting_troubles(client, [session], tell))
        found = _taken(client, session) if take else _messages(client, session, unread, follow)
        for message in found:
            shown = True
            click.echo(message.model_dump_json() if as_json else "\n".join(message_lines(message)))
    if not shown and not as_json:
        click.echo("no unread messages" if unread or take else "no messages")
    return 0


def _taken(client: Client, session: str) -> Iterator[InboxMessage]:
    """Acknowledges all messages that no turn has got, and yields them."""
    while found := client.take_messages(session):
        yield from found


def message_lines(message: InboxMessage) -> Iterator[str]:
    """Formats an inbox message: a line with number and sender, then its text."""
    state = "unread" if message.read_at is None else f"read by {plain(message.read_by)}"
    mark = ", failure" if message.escalates else ""
    sender, at = plain(message.sender), clock_time(message.at)
    yield f"{message.id}. {message.kind} from {sender}{mark}  {at}  {state}"
    yield from block(message.text, indent="    ")


def _messages(client: Client, session: str, unread: bool, follow: bool) -> Iterator[InboxMessage]:
    from leadhand.cli.connect import tell

    reading = _Reading(client, session, unread=unread)
    yield from reading.read_new()
    if not follow:
        return
    if not reading.last:
        tell("no messages yet; each is shown when it comes, until the session ends")
    for event in client.events(session):
        id_ = event.fields.get("id")
        if event.type == "inbox.message" and isinstance(id_, int) and id_ > reading.last:
            yield from reading.read_new()
    yield from reading.read_new()


class _Reading:
    """A position in an inbox."""

    def __init__(self, client: Client, session: str, *, unread: bool) -> None:
        self.last = 0
        self._client = client
        self._session = session
        self._unread = unread
        self._cursor: str | None = None

    def read_new(self) -> Iterator[InboxMessage]:
        """The messages after the position; reads the last page again, as it may have grown."""
        while True:
            page = self._client.inbox(
                self._session, unread=self._unread, limit=_PAGE, cursor=self._cursor
            )
            for message in page.items:
                if message.id > self.last:
                    self.last = message.id
                    yield message
            if page.next is None:
                return
            self._cursor = page.next
