"""`leadhand transcript`: what agents and people said in a session, in one order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.client import Client
    from leadhand.views import TranscriptEntry


@click.command("transcript")
@click.argument("session")
@click.option("--follow", "-f", is_flag=True, help="Go on until the session has ended.")
@click.option("--markdown", is_flag=True, help="All of it as one Markdown document.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per record and line.")
def transcript_command(*, session: str, follow: bool, markdown: bool, as_json: bool) -> int:
    """Print what agents and people said in SESSION, in order."""
    from leadhand.cli.connecting import connected

    if markdown and (follow or as_json):
        raise click.UsageError("--markdown is the whole of it; leave out --follow and --json")
    with connected() as client:
        if markdown:
            click.echo(client.transcript_text(session), nl=False)
            return 0
        for entry in said_in(client, session, follow=follow):
            click.echo(entry.model_dump_json() if as_json else "\n".join(_shown(entry)))
    return 0


def said_in(client: Client, session: str, *, follow: bool = False) -> Iterator[TranscriptEntry]:
    """Each record once, in order; on and on until the session has ended where it is followed."""
    reading = _Reading(client, session)
    yield from reading.on()
    if not follow:
        return
    for event in client.events(session):
        seq = event.fields.get("seq")
        if event.type == "transcript.added" and isinstance(seq, int) and seq > reading.last:
            yield from reading.on()
    yield from reading.on()


class _Reading:
    """How far somebody has read."""

    def __init__(self, client: Client, session: str) -> None:
        self.last = 0
        self._client = client
        self._session = session
        self._cursor: str | None = None

    def on(self) -> Iterator[TranscriptEntry]:
        """What is there beyond; the last page is read again, for it may have grown."""
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
    from leadhand.text import block, plain

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
    yield f"{entry.seq}. {', '.join(parts)}  {entry.at}"
    yield from block(entry.text, indent="    ")
