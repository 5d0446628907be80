"""`leadhand ls`: the sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.tables import echo_json, table

if TYPE_CHECKING:
    from leadhand.views import SessionView


@click.command("ls")
@click.option(
    "--status", metavar="WORD", multiple=True,
    help="Only those of this status, such as active; may be given several times.",
)  # fmt: skip
@click.option("--kind", metavar="WORD", help="Only those of this kind: loop, workflow or flow.")
@click.option("--label", metavar="TEXT", help="Only those with this label.")
@click.option("--reason", metavar="WORD", help="Only those with this reason, such as exit.")
@click.option("--parent", metavar="ID", help="Only those that a step of this session started.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def ls_command(*, status: tuple[str, ...], limit: int, as_json: bool, **wanted: str | None) -> int:
    """List sessions, the newest first."""
    from leadhand.cli.connecting import connected

    with connected() as client:
        page = client.sessions(status=status or None, limit=limit, **wanted)
    if as_json:
        echo_json(page)
        return 0
    head = ["ID", "KIND", "NAME", "STATUS", "ITERATIONS", "CREATED"]
    rows = [
        [
            view.id,
            view.kind,
            view.label or view.name,
            _status(view),
            view.counters.iterations,
            view.created_at,
        ]
        for view in page.items
    ]
    for line in table(head, rows) if rows else ["no sessions; start one with `leadhand spawn`"]:
        click.echo(line)
    if page.next is not None:
        click.echo(f"... more than {limit}: see --limit")
    return 0


def _status(view: SessionView) -> str:
    """Its status, and that not all of what came to it went well."""
    count = len(view.warnings)
    return f"{view.status} ({count} warning{'s' if count > 1 else ''})" if count else view.status
