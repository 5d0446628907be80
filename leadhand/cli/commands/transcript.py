"""`leadhand transcript`: prints the messages of agents and people in a session, in order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.step import TranscriptEntry


@click.command("transcript")
@click.argument("session")
@click.option("--follow", "-f", is_flag=True, help="Continue until the session has ended.")
@click.option("--markdown", is_flag=True, help="Print one Markdown document.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per record and line.")
def transcript_command(*, session: str, follow: bool, markdown: bool, as_json: bool) -> int:
    """Print the messages of agents and people in SESSION, in order.

    Ctrl-C leaves it running.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.leave_running import following
    from leadhand.client.waiting import reporting_troubles

    if markdown and (follow or as_json):
        raise click.UsageError("--markdown prints one document; leave out --follow and --json")
    with open_client(needs_worker=False) as client, ExitStack() as stack:
        if follow:
            stack.enter_context(following(session))
            stack.enter_context(reporting_troubles(client, [session], tell))
        if markdown:
            click.echo(client.transcript_text(session), nl=False)
            return 0
        for entry in transcript_entries(client, session, follow=follow):
            click.echo(entry.model_dump_json() if as_json else "\n".join(_shown(entry)))
    return 0


def transcript_entries(
    client: Client, session: str, *, follow: bool = False
) -> Iterator[TranscriptEntry]:
    """Yields a session's transcript in order; with `follow`, also new entries until its end."""
    reading = _Reading(client, session)
    yield from reading.read_new()
    if not follow:
        return
    for event in client.events(session):
        seq = event.fields.get("seq")
        if event.type == "transcript.added" and isinstance(seq, int) and seq > reading.last:
            yield from reading.read_new()
    yield from reading.read_new()


class _Reading:
    """A position in a transcript."""

    def __init__(self, client: Client, session: str) -> None:
        self.last = 0
        self._client = client
        self._session = session
        self._cursor: str | None = None

    def read_new(self) -> Iterator[TranscriptEntry]:
        """The entries after the position; reads the last page again, as it may have grown."""
        while True:
            page = self._client.transcript(self._session, cursor=self._cursor)
            for entry in page.items:
                if entry.seq > self.last:
                    self.last = entry.seq
                    yield entry
            if page.next is None:
                return
            self._cursor = page.next


def _shown(entry: TranscriptEntry) -> Iterator[str]:
    from leadhand.cli.render.times import clock_time
    from leadhand.models.text import block, plain, tool_lines

    who = "|".join(part for part in (entry.agent, entry.identifier) if part)
    parts = [plain(entry.label), entry.role + (f" {plain(who)}" if who else "")]
    if entry.index is not None:
        parts.append(f"step {entry.index} of {entry.total}")
    if entry.iteration is not None:
        parts.append(f"iteration {entry.iteration} at {plain(entry.address)}")
    if entry.attempt > 1:
        parts.append(f"attempt {entry.attempt}")
    if entry.verdict is not None:
        parts.append(entry.verdict)
    if entry.cost_usd is not None:
        parts.append(f"${entry.cost_usd:.4f}")
    yield f"{entry.seq}. {', '.join(parts)}  {clock_time(entry.at)}"
    yield from (f"    {line}" for line in tool_lines(entry.tools))
    yield from block(entry.text, indent="    ")
    if entry.raw is not None:
        yield "    the whole answer:"
        yield from block(entry.raw, indent="      ")
