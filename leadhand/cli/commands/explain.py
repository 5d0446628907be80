"""`leadhand explain`: why a session waits, why it ended, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.connect import shows
from leadhand.cli.render.times import local_time, with_local_times
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views.explain import ExplainView, Wait


@click.command("explain")
@click.argument("session")
@shows("explain", needs_worker=False, with_json=True)
def explain_command(view: ExplainView, **_: object) -> Iterator[str]:
    """Show why SESSION waits or why it ended, and what to do next.

    The suggested commands can be run as they are; replace TEXT with your own words.
    """
    yield from explanation(view)


def explanation(view: ExplainView) -> Iterator[str]:
    """Formats why a session waits or ended: status, causes, waits, and commands to run next."""
    from leadhand.cli.render.result_text import work_lines
    from leadhand.models.views.session import ENDED

    yield f"session {view.session} is {view.status}: {_shown(view.text)}"
    if view.causes:
        yield ""
    for depth, cause in enumerate(view.causes):
        at = f" at {plain(cause.label or cause.at)}" if cause.at else ""
        text = f": {_shown(cause.text)}" if cause.text else ""
        yield f"{'  ' * depth}{'because ' if depth else 'why: '}{cause.code}{at}{text}"
    if view.waits:
        yield ""
    yield from _waits(view.waits)
    if view.status in ENDED:
        yield from work_lines(view.session, view.status, view.worktree)
    if view.next:
        yield ""
        yield "next:"
    whys = {one.command: one.why for one in view.actions}
    for command in view.next:
        yield f"  {plain(command, most=400)}"
        if command in whys:  # on its own line: not every shell has comments
            yield f"    {plain(whys[command], most=200)}"


def _waits(waits: list[Wait], indent: str = "") -> Iterator[str]:
    """Formats what each step of a session waits for, and beneath it those of its child session."""
    for wait in waits:
        what = plain(wait.address or wait.session)
        label = f" ({plain(wait.label)})" if wait.label and wait.label not in wait.address else ""
        is_in_text = f"since {wait.since}" in wait.text
        since = f" since {local_time(wait.since)}" if wait.since and not is_in_text else ""
        yield f"{indent}{what}{label}  {wait.why}{since}: {_shown(wait.text)}"
        yield from _waits(wait.beneath, indent + "  ")


def _shown(text: str) -> str:
    return plain(with_local_times(text), most=400)
