"""`leadhand stats`: show what ended, was accepted and was used in the last days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click

from leadhand.cli.render.tables import echo_json

#: Days that the server keeps.
MOST_DAYS = 400


@click.command("stats")
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=7, show_default=True,
              help="How many days, today included, by UTC.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def stats_command(*, days: int, as_json: bool) -> int:
    """Show counts and costs of the last days.

    How sessions ended and why, in which iteration loops were accepted, what each checker decided,
    and what each agent cost. Each end counts once, also if its session was deleted since.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.statistics_text import statistics_lines

    last = datetime.now(UTC).date()
    with open_client(needs_worker=False) as client:
        view = client.statistics(last - timedelta(days=days - 1), last)
    if as_json:
        echo_json(view)
    else:
        for line in statistics_lines(view):
            click.echo(line)
    return 0
