"""The session whose tree a command is about."""

from __future__ import annotations

import click


def named_or_own(session: str | None) -> str:
    """Returns the given session id, else LEADHAND_SESSION's. Raises ClickException without both."""
    from leadhand.settings import ClientSettings

    session = session or ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: name a session of the tree with --session ID"
        )
    return session


option = click.option(
    "--session", metavar="ID", help="A session of the tree; by default the own one."
)
