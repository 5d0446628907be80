"""`leadhand limit`: limits how many attempts run at once, and start per minute."""

from __future__ import annotations

from collections.abc import Iterator

import click

from leadhand.cli.connect import shows
from leadhand.cli.group import Group
from leadhand.cli.render.tables import echo_json, table


@click.group("limit", cls=Group, context_settings={"max_content_width": 100})
def limit_command() -> None:
    """List, set and remove limits.

    A KEY is agent:NAME, model:NAME, queue:NAME, or key:NAME for doers with that concurrency_key. A
    limit holds across all workers. A step that waits for it uses no worker slot.
    """


@limit_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def list_(*, as_json: bool) -> int:
    """List all limits, by key."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        found = client.limits()
    if as_json:
        echo_json({"items": [limit.model_dump(mode="json") for limit in found], "next": None})
        return 0
    head = ["KEY", "CONCURRENCY", "PER MINUTE"]
    rows = [[limit.key, _shown(limit.concurrency), _shown(limit.per_minute)] for limit in found]
    for line in table(head, rows) if rows else ["no limits; set one with `leadhand limit set`"]:
        click.echo(line)
    return 0


@limit_command.command("set")
@click.argument("key")
@click.option(
    "--concurrency", type=click.IntRange(1, 100_000), metavar="N", help="The most at once."
)
@click.option(
    "--per-minute", type=click.FloatRange(0, 100_000, min_open=True), metavar="N",
    help="The most that start per minute.",
)  # fmt: skip
def set_(*, key: str, concurrency: int | None, per_minute: float | None) -> int:
    """Limit how many attempts with KEY run at once, start per minute, or both."""
    from leadhand.cli.connect import open_client

    if concurrency is None and per_minute is None:
        raise click.UsageError("give --concurrency, --per-minute or both")
    with open_client(needs_worker=False) as client:
        limit = client.set_limit(key, concurrency=concurrency, per_minute=per_minute)
    at_once = f"{limit.concurrency} at once" if limit.concurrency is not None else ""
    begin = f"{limit.per_minute:g} a minute" if limit.per_minute is not None else ""
    click.echo(f"{limit.key} is limited to {' and '.join(filter(None, (at_once, begin)))}")
    return 0


@limit_command.command("rm")
@click.argument("key")
@shows("remove_limit", needs_worker=False)
def rm(_: None, *, key: str) -> Iterator[str]:
    """Remove the limit on concurrency and rate of KEY."""
    yield f"{key} is not limited"


def _shown(limit: float | None) -> str:
    return "-" if limit is None else f"{limit:g}"
