"""`leadhand store`: shows which store Redis holds, and accepts another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.cli.render.tables import echo_json
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views.fleet import StoreView

_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")


@click.group("store", cls=Group, context_settings={"max_content_width": 100})
def store_command() -> None:
    """Show the store in Redis, and accept another one.

    The API and each worker remember the id of the store that they work with. If Redis comes back
    empty, with another store or with an older state, they stop work until it is accepted.
    """


@store_command.command("show")
@_AS_JSON
def show(*, as_json: bool) -> int:
    """Show which data set (store) Redis holds, and which one the API remembers.

    Exits with 1 if it is not the known one.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        return _show(client.store(), as_json=as_json)


@store_command.command("accept")
@click.option("--new", is_flag=True, help="Accept an empty Redis, or another store than before.")
@click.option(
    "--replaces",
    metavar="ID",
    help="The id of the store that a worker expects; its log has it.",
)
@_AS_JSON
def accept(*, new: bool, replaces: str | None, as_json: bool) -> int:
    """Accept the data that Redis holds now as the store, so that the API and workers use it.

    Without --new only an older state of the same store is accepted, such as a restored backup. With
    --new the sessions of the previous store are lost. Needs a token with the scope admin; while
    Redis is empty that is LEADHAND_API_TOKEN.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        return _show(client.accept_store(new=new, replaces=replaces), as_json=as_json)


def _show(view: StoreView, *, as_json: bool) -> int:
    if as_json:
        echo_json(view)
    else:
        click.echo(f"store {view.id or '-'} is {view.state}")
        for line in filter(None, [view.text, _remembered(view)]):
            click.echo(plain(line, most=400))
    return 0 if view.state == "known" else 1


def _remembered(view: StoreView) -> str:
    if view.file is None:
        return "the API remembers it until it ends; set LEADHAND_STATE_DIR to keep it longer"
    return f"the API remembers {view.remembered or 'no store yet'} in {view.file}"
