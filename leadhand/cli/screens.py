"""Shows a session while it runs: a live picture on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

import click

from leadhand.cli.lines import screen, sentence
from leadhand.cli.picture import Picture, after
from leadhand.views import Event, SessionView

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_REFRESHES_PER_SECOND = 4


class PlainScreen:
    """One line per event, without control characters."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._picture = Picture(session="")

    def began(self, session: SessionView) -> None:
        self._picture = first_picture(session)
        self._write(f"session {session.id}: follow it elsewhere with: leadhand watch {session.id}")

    def saw(self, event: Event) -> None:
        self._picture = after(self._picture, event)
        said = sentence(self._picture, event)
        if said is not None:
            self._write(said)

    def left(self) -> None:
        """Nothing is open."""


class LiveScreen:
    """A picture that stays in its place and is drawn anew while time goes by."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._console = console
        self._clock = clock
        self._picture = Picture(session="")
        self._seen_at = clock()
        self._live = Live(
            console=console,
            get_renderable=self._render,
            refresh_per_second=_REFRESHES_PER_SECOND,
            vertical_overflow="crop",
        )

    def began(self, session: SessionView) -> None:
        self._picture = first_picture(session)
        self._live.start()

    def saw(self, event: Event) -> None:
        self._picture = after(self._picture, event)
        self._seen_at = self._clock()

    def left(self) -> None:
        self._live.stop()

    def _render(self) -> RenderableType:
        from rich.console import Group
        from rich.text import Text

        now_ms = self._picture.latest_ms + round((self._clock() - self._seen_at) * 1000)
        lines = screen(self._picture, now_ms=now_ms, height=self._console.height)
        return Group(
            *(
                Text(line.text, style=line.style, no_wrap=True, overflow="ellipsis")
                for line in lines
            )
        )


def screen_for(stream: TextIO) -> PlainScreen | LiveScreen:
    """The screen that suits a stream."""
    if not stream.isatty():
        return PlainScreen(lambda line: click.echo(line, file=stream))
    from rich.console import Console

    return LiveScreen(Console(file=stream, highlight=False))


def screen_beside_json() -> PlainScreen | LiveScreen | None:
    """The screen of a command whose standard output is for one object: the user's, or none."""
    return screen_for(sys.stderr) if sys.stderr.isatty() else None


def first_picture(session: SessionView) -> Picture:
    """What a session's view says before its first event is seen."""
    labels = {node.node: node.label for node in session.progress.nodes if node.label}
    return Picture(
        session=session.id,
        name=session.label or session.name,
        labels=MappingProxyType(labels),
    )
