"""`leadhand watch`, `wait`, `poll`, `logs` and `transcript`: what sessions do, and their ends."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from leadhand.cli.render.tables import echo_json, table

if TYPE_CHECKING:
    from leadhand.cli.render.output_text import OutputLines
    from leadhand.cli.render.progress import Picture
    from leadhand.client.client import Client
    from leadhand.models.views.result import ResultView
    from leadhand.models.views.session import SessionView
    from leadhand.models.views.step import Event, TranscriptEntry


@click.command("watch")
@click.argument("session")
def watch_command(*, session: str) -> int:
    """Show SESSION live until it ends. Ctrl-C leaves it running."""
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.exit_codes import code_of
    from leadhand.cli.questions import answering_questions
    from leadhand.cli.render.live import screen_for
    from leadhand.cli.render.result_text import ending
    from leadhand.cli.running import following
    from leadhand.client.waiting import IN_EVENTS, reporting_troubles

    with open_client(needs_worker=True) as client:
        view = client.session(session)
        screen = screen_for(sys.stdout)
        with following(session):
            try:
                screen.start(view)
                with (
                    reporting_troubles(
                        client, [session], tell, on_view=screen.update, shown=IN_EVENTS
                    ),
                    answering_questions(client, [session], screen=screen),
                ):
                    for event in client.events(session, output=screen.wants_output):
                        screen.show(event)
            finally:
                screen.close()
            result = client.wait(session)
    click.echo(f"session {session}: {ending(result)}")
    return code_of(result.status)


@click.command("wait")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--summary", is_flag=True, help="Print only the first line of each result.")
@click.option("--timeout", "timeout_s", type=float, metavar="S", help="Seconds for each session.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def wait_command(
    *, sessions: tuple[str, ...], summary: bool, timeout_s: float | None, as_json: bool
) -> int:
    """Wait until all sessions have ended, and print their results.

    Each result begins with one line: the session's name, id and status, and the reason.

    Exits with 0 if all are done, 3 if any failed, else 2 if any was stopped, exited or aborted.
    Ctrl-C leaves them running.
    """
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.exit_codes import HALTED, worst
    from leadhand.cli.questions import ASKED, answering_questions
    from leadhand.cli.render.session_text import head_line
    from leadhand.cli.running import leaving_running
    from leadhand.client.waiting import reporting_troubles

    with open_client(needs_worker=True) as client:
        views = [client.session(session) for session in dict.fromkeys(sessions)]
        try:
            running = [view.id for view in views if not view.ended]
            for view in views if sys.stderr.isatty() else ():
                if view.ended:
                    continue
                tell(f"waiting for {head_line(view)}")
            with (
                leaving_running(running),
                reporting_troubles(client, running, tell, shown=ASKED),
                answering_questions(client, running, as_json=as_json),
            ):
                results = [client.wait(view.id, timeout_s) for view in views]
        except KeyboardInterrupt:
            tell("the sessions continue; stop one with: leadhand stop ID")
            return HALTED
    _show(views, results, summary=summary, as_json=as_json)
    return worst(result.status for result in results)


def _show(
    views: list[SessionView], results: list[ResultView], *, summary: bool, as_json: bool
) -> None:
    from leadhand.cli.render.result_text import ending, work_lines
    from leadhand.models.text import block, plain

    if as_json:
        dumps = [result.model_dump(mode="json") for result in results]
        echo_json(dumps[0] if len(dumps) == 1 else {"sessions": dumps})
        return
    for view, result in zip(views, results, strict=True):
        name = f"[{plain(view.title, most=60)} ({view.id})]"
        click.echo(f"{name} {result.status}: {ending(result)}")
        work = work_lines(view.id, result.status, result.worktree)
        for line in () if summary else (*block(result.result_text), *work):
            click.echo(line)


@click.command("poll")
@click.argument("sessions", metavar="ID...", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def poll_command(*, sessions: tuple[str, ...], as_json: bool) -> int:
    """Print what sessions do now, without waiting for them.

    Results are never printed. TOOL CALLS are the steps carried out so far: each called an agent, a
    command or a tool once.
    To block until sessions have ended, use `leadhand wait`.
    """
    from dataclasses import asdict

    from leadhand.cli.connect import open_client
    from leadhand.cli.render.live_text import elapsed
    from leadhand.state import poll

    with open_client(needs_worker=True) as client:
        found = [poll(session, client=client) for session in dict.fromkeys(sessions)]
    if as_json:
        dumps = [asdict(one) for one in found]
        echo_json(dumps[0] if len(dumps) == 1 else {"sessions": dumps})
        return 0
    rows = [
        [one.id, one.status, elapsed(round(one.elapsed * 1000)), one.tool_calls, one.activity]
        for one in found
    ]
    for line in table(["ID", "STATUS", "ELAPSED", "TOOL CALLS", "ACTIVITY"], rows):
        click.echo(line)
    return 0


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
    from leadhand.cli.render.live import first_picture
    from leadhand.cli.render.output_text import OutputLines
    from leadhand.cli.render.progress import apply_event
    from leadhand.cli.render.session_text import head_line
    from leadhand.cli.running import following
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
    from leadhand.cli.running import following
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
