"""Shows a session while it runs: a live view on a terminal, plain lines in a pipe."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

import click

from leadhand.cli.render.live_text import Line, failures_of, screen, sentence
from leadhand.cli.render.output_text import Tail
from leadhand.cli.render.progress import Picture, apply_event
from leadhand.cli.render.session_text import head_line
from leadhand.cli.render.terminal import raw
from leadhand.client.events import OUTPUT
from leadhand.models.text import escape_controls
from leadhand.models.views.session import SessionView
from leadhand.models.views.step import Event

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_REFRESHES_PER_SECOND = 4
#: Seconds between two lines of output where there is no terminal.
_OUTPUT_S = 10.0


class PlainScreen:
    """Prints one line per event, and the last line of output every 10 s, if there is a new one."""

    wants_output = True

    def __init__(
        self, write: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._write = write
        self._clock = clock
        self._picture = Picture(session="")
        #: The texts of failures that were printed, each beside its step.
        self._failures: set[str] = set()
        self._tail = Tail()
        self._shown_at = clock()
        #: Whether there is output that was not printed.
        self._has_news = False
        self._lock = threading.Lock()

    def start(self, session: SessionView) -> None:
        """Print the id and title of a session, and the command that follows it elsewhere."""
        self._picture = first_picture(session)
        self._write(head_line(session))
        self._write(f"follow it elsewhere with: leadhand watch {session.id}")

    def show(self, event: Event) -> None:
        """Print one line that describes an event, if the event is shown."""
        if event.type == OUTPUT:
            with self._lock:
                self._tail.add(event)
                self._has_news = True
            self._write_output(_OUTPUT_S)
            return
        if event.type == "step.settled" and event.address == self._tail.address:
            self._write_output(0)
        self._picture = apply_event(self._picture, event)
        line = sentence(self._picture, event)
        if line is not None:
            self._write(self.once(line))
        self._failures |= failures_of(event)

    def once(self, line: str) -> str:
        """Return a line without the failures that were printed before."""
        for failure in self._failures:
            line = re.sub(rf": {re.escape(failure)}(?=$|: )", "", line)
        return line

    def update(self, session: SessionView) -> None:  # noqa: ARG002 - of all audiences
        """Print the last line of output if it is due; each line has the cost of its step."""
        self._write_output(_OUTPUT_S)

    def _write_output(self, after_s: float) -> None:
        """Print the last line of output, if it is new and the one before is so long ago."""
        with self._lock:  # the session's views come in another thread than its events
            if self._has_news and self._tail.last and self._clock() - self._shown_at >= after_s:
                self._write(f"  {self._tail.last}")
                self._shown_at, self._has_news = self._clock(), False

    def close(self) -> None:
        """Do nothing: no view is open."""

    def say(self, line: str) -> None:
        """Print a line of text as it is."""
        self._write(line)


class LiveScreen:
    """Redraws a session's progress in place, several times per second."""

    wants_output = True

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._console = console
        self._clock = clock
        self._picture = Picture(session="")
        self._seen_at = clock()
        self._tail = Tail()
        self._cost_usd = 0.0
        self._worked_ms: int | None = None
        self._viewed_at = clock()
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=_REFRESHES_PER_SECOND,
            vertical_overflow="crop",
        )
        self._lock = threading.Lock()
        self._is_open = self._is_paused = False

    def start(self, session: SessionView) -> None:
        """Start to draw a session's progress on the terminal, unless drawing is paused."""
        self._picture = first_picture(session)
        self.update(session)
        with self._lock:
            self._is_open = True
            if not self._is_paused:
                self._live.start()

    def pause(self) -> None:
        """Stop drawing until `resume`, so that another thread can use the terminal."""
        with self._lock:
            self._is_paused = True
            self._live.stop()

    def resume(self) -> None:
        """Continue drawing, unless the screen was closed."""
        with self._lock:
            self._is_paused = False
            if self._is_open:
                self._live.start()

    def show(self, event: Event) -> None:
        """Update the displayed progress, or output, with an event."""
        if event.type == OUTPUT:
            self._tail.add(event)
            return
        self._picture = apply_event(self._picture, event)
        self._seen_at = self._clock()

    def update(self, session: SessionView) -> None:
        """Update the displayed cost and elapsed time from a session, as no event reports them."""
        self._cost_usd = session.counters.cost_usd
        if session.progress.elapsed_s is not None:
            self._worked_ms = round(session.progress.elapsed_s * 1000)
            self._viewed_at = self._clock()

    def close(self) -> None:
        """Stop drawing, and leave the last state on the screen."""
        with self._lock:
            self._is_open = False
            self._live.stop()

    def _now_ms(self) -> int:
        """The present time by the server's clock.

        The newest event alone is not enough: the view may have been opened long after it.
        """
        started, now = self._picture.started_ms, self._clock()
        now_ms = self._picture.latest_ms + round((now - self._seen_at) * 1000)
        if started is None or self._worked_ms is None:
            return now_ms
        return max(now_ms, started + self._worked_ms + round((now - self._viewed_at) * 1000))

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        picture = self._picture
        picture = replace(picture, cost_usd=max(picture.cost_usd, self._cost_usd))
        now_ms = self._now_ms()
        tail = [] if picture.ended else self._tail.shown(now_ms)
        lines = screen(picture, now_ms=now_ms, height=self._console.height - len(tail))
        lines += [Line(line) for line in tail]
        return Group(
            *(
                Text(
                    escape_controls(line.text), style=line.style, no_wrap=True, overflow="ellipsis"
                )
                for line in lines
            )
        )


def screen_for(stream: TextIO) -> PlainScreen | LiveScreen:
    """Returns a live screen for a terminal, a plain one for any other stream."""
    if not stream.isatty():
        return PlainScreen(lambda line: click.echo(escape_controls(line), file=stream))
    from rich.console import Console

    return LiveScreen(Console(file=raw(stream), highlight=False))


def screen_beside_json() -> PlainScreen | LiveScreen | None:
    """Returns a screen on standard error, for a command that prints JSON; None without terminal."""
    return screen_for(sys.stderr) if sys.stderr.isatty() else None


def first_picture(session: SessionView) -> Picture:
    """Returns the state of the progress display before a session's first event."""
    labels = {node.node: node.label for node in session.progress.nodes if node.label}
    return Picture(
        session=session.id,
        name=session.title,
        labels=MappingProxyType(labels),
        at_most=session.progress.at_most,
    )
