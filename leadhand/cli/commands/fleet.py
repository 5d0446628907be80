"""`leadhand queues`, `leadhand workers` and `leadhand top`: show the state of the fleet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from leadhand.cli.connect import shows
from leadhand.cli.render.tables import echo_json
from leadhand.cli.render.terminal import raw
from leadhand.cli.render.times import clock_time
from leadhand.models.text import escape_controls

if TYPE_CHECKING:
    from rich.text import Text

    from leadhand.client.client import Client
    from leadhand.models.views.fleet import FleetView, QueueView, WorkerView


@click.command("queues")
@shows("queues", needs_worker=True, with_json=True)
def queues_command(queues: list[QueueView]) -> list[str]:
    """List the queues with their messages, steps and workers."""
    from leadhand.cli.render.fleet_text import queue_lines

    return queue_lines(queues)


@click.command("workers")
@shows("workers", needs_worker=True, with_json=True)
def workers_command(workers: list[WorkerView]) -> list[str]:
    """List the workers with the steps that each is running."""
    from leadhand.cli.render.fleet_text import worker_lines

    return worker_lines(workers, datetime.now(UTC))


@click.command("top")
@click.option("--once", is_flag=True, help="Print once and exit; the default in a pipe.")
@click.option("--every", type=click.FloatRange(0.2, 60), default=1.0, show_default=True,
              help="Seconds between two updates.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def top_command(*, once: bool, every: float, as_json: bool) -> int:
    """Watch the fleet.

    Shows sessions by status, queues, workers, and overdue leases and steps. Ctrl-C leaves and stops
    no session.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.fleet_text import fleet_lines

    with open_client(needs_worker=True) as client:
        if as_json:
            echo_json(client.fleet())
        elif once or not sys.stdout.isatty():
            _echo(fleet_lines(client.fleet()))
        else:
            _live(client, every)
    return 0


def _echo(lines: list[str]) -> None:
    for line in lines:
        click.echo(line)


def _live(client: Client, every_s: float) -> None:
    """Redraw the fleet's state in place until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from leadhand.errors import ApiAway, Unavailable

    with Live(console=Console(file=raw(sys.stdout)), screen=True, auto_refresh=False) as live:
        picture = _Picture(live.console.height)
        try:
            while True:
                try:
                    picture.show(client.fleet(), live.update)
                except (ApiAway, Unavailable) as error:
                    picture.lose(str(error), live.update)
                live.refresh()
                time.sleep(every_s)
        except KeyboardInterrupt:
            return


class _Picture:
    """The latest state on the screen; kept while the API is unreachable."""

    def __init__(self, height: int) -> None:
        self._height = height
        self._lines: list[str] = []

    def show(self, fleet: FleetView, draw: Callable[[Text], None]) -> None:
        from leadhand.cli.render.fleet_text import fleet_lines

        self._lines = fleet_lines(fleet)
        self._draw([f"leadhand top, {clock_time(fleet.at)}; Ctrl-C leaves", *self._lines], draw)

    def lose(self, why: str, draw: Callable[[Text], None]) -> None:
        self._draw([why, *self._lines], draw)

    def _draw(self, lines: list[str], draw: Callable[[Text], None]) -> None:
        from rich.text import Text

        text = escape_controls("\n".join(lines[: self._height]))
        draw(Text(text, no_wrap=True, overflow="ellipsis"))
