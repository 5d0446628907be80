"""`leadhand tree`: shows a session and all sessions below it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.connect import shows

if TYPE_CHECKING:
    from leadhand.models.views.session import TreeView


@click.command("tree")
@click.argument("session")
@click.option("--limit", type=click.IntRange(1, 1000), default=200, show_default=True)
@shows("tree", needs_worker=False, with_json=True)
def tree_command(view: TreeView, **_: object) -> Iterator[str]:
    """Show SESSION and all sessions below it.

    These are the sessions that its steps, doers and checkers started. Each line has a session's
    name, id and status, how long it took, its cost with that of its children, and why it ended.
    Below them is why SESSION ended, the root cause first.
    """
    from leadhand.cli.commands.ls import name_damaged
    from leadhand.cli.render.tree_text import tree_lines

    yield from tree_lines(view)
    name_damaged(view.damaged)
