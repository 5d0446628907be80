"""`leadhand show`: one session, with each of its iterations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.tables import echo_json
from leadhand.text import block, plain

if TYPE_CHECKING:
    from leadhand.client import Client
    from leadhand.views import DiffView, LedgerEntry

#: No iteration in particular.
_ALL = 0
#: How many of the sessions that it started are shown.
_CHILDREN = 50


@click.command("show")
@click.argument("session")
@click.option(
    "--diff",
    "iteration",
    is_flag=False,
    flag_value=_ALL,
    type=click.IntRange(min=_ALL),
    metavar="[ITERATION]",
    help="What doers changed in their folder; of one iteration, or of all.",
)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def show_command(*, session: str, iteration: int | None, as_json: bool) -> int:
    """Show SESSION, and the verdicts and feedback of its iterations."""
    from leadhand.cli.connecting import connected
    from leadhand.cli.portraits import portrait

    if iteration is not None:
        return _show_diffs(session, iteration or None, as_json=as_json)
    with connected() as client:
        view = client.session(session)
        ledger = list(whole_ledger(client, session))
        # Whatever a session has started is younger than it is.
        page = client.sessions(parent=session, created_after=view.created_at, limit=_CHILDREN)
    if as_json:
        entries = [entry.model_dump(mode="json") for entry in ledger]
        echo_json({"session": view.model_dump(mode="json"), "ledger": entries,
                   "children": [child.id for child in page.items]})  # fmt: skip
        return 0
    for line in portrait(view, ledger, page.items):
        click.echo(line)
    return 0


def _show_diffs(session: str, iteration: int | None, *, as_json: bool) -> int:
    from leadhand.cli.connecting import connected

    with connected() as client:
        found = list(_all_diffs(client, session, iteration))
    if as_json:
        echo_json({"items": [diff.model_dump(mode="json") for diff in found]})
        return 0
    for diff in found:
        click.echo(f"# {plain(diff.address)}, iteration {diff.iteration}")
        for line in block(diff.patch):
            click.echo(line)
    if not found:
        click.echo(
            "no changes are kept: its folder is in no git repository, nothing changed, "
            "or newer ones took their room (then its warnings say so)"
        )
    return 0


def _all_diffs(client: Client, session: str, iteration: int | None) -> Iterator[DiffView]:
    page = client.diffs(session, iteration=iteration)
    yield from page.items
    while page.next is not None:
        page = client.diffs(session, iteration=iteration, cursor=page.next)
        yield from page.items


def whole_ledger(client: Client, session: str) -> Iterator[LedgerEntry]:
    """Each iteration, over as many pages as there are."""
    page = client.ledger(session)
    yield from page.items
    while page.next is not None:
        page = client.ledger(session, cursor=page.next)
        yield from page.items
