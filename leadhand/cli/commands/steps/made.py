"""Prints the session that a command made from another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.models.views.session import SessionView


def show_made(view: SessionView, how: str, *, as_json: bool) -> None:
    """Prints a new session: as JSON, or its id with how to follow it, and its warnings."""
    from leadhand.cli.render.tables import echo_json
    from leadhand.models.text import plain

    if as_json:
        echo_json(view)
        return
    click.echo(
        f"session {view.id} is {view.status}, {how}; follow it with: leadhand watch {view.id}"
    )
    if view.worktree is not None:
        click.echo(
            f"it works in a folder of its own; bring its work back with: leadhand apply {view.id}"
        )
    for warning in view.warnings:
        click.echo(f"warning: {plain(warning, most=400)}", err=True)
