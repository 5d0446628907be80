"""`leadhand import`: imports the sessions of a state folder that was created elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from leadhand.cli.render.tables import plural
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views import SessionView


@click.command("import")
def import_command() -> int:
    """Import the sessions of an old or copied .leadhand/ folder.

    All sessions are stopped, and none runs until you resume it. Needed once for a folder of an
    earlier version, and for a copy. The sessions stay in it: `leadhand --home .leadhand` uses them.
    Webhooks, pending deliveries and
    API tokens are removed, so no receiver is contacted. Import only what you trust: a resumed
    session runs its commands as you.
    """
    from leadhand.cli.connect import tell
    from leadhand.cli.import_folder import import_sessions
    from leadhand.settings import ClientSettings, environment

    named = ClientSettings.from_env().home
    home = (named or Path(".leadhand")).absolute()
    if not home.exists():
        click.echo(f"there is no {plain(str(home))}; nothing was imported")
        return 0
    found = import_sessions(home, environment(), tell)
    if found is None:
        click.echo("these sessions are yours already; nothing was imported")
        return 0
    way = "" if named is not None else " --home .leadhand"
    for session in found:
        click.echo(_line(session))
    if found:
        click.echo("their webhooks and API tokens were removed; create new tokens if needed")
    click.echo(
        f"{plural(len(found), 'session')} imported;"
        f" see each with `leadhand{way} show`, resume it with `leadhand{way} resume`"
    )
    return 0


def _line(session: SessionView) -> str:
    return f"{plain(session.id)}  {plain(session.status)}  in {plain(session.cwd or 'no folder')}"
