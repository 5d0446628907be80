"""`leadhand fsck`: whether all that Redis and the broker hold agrees, and mending what does not."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from leadhand.cli.codes import DONE, FAILED
from leadhand.cli.tables import echo_json
from leadhand.text import plain

if TYPE_CHECKING:
    from leadhand.views import FsckView

#: How many findings of one kind are shown to people.
_SHOWN = 20


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Mend what can be mended.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def fsck_command(*, repair: bool, as_json: bool) -> int:
    """Cross-check sessions, deadlines, indexes, locks and queues.

    A fleet may be at work meanwhile: each doubt is looked at again, and mended, in one step.
    Exits with 0 where nothing was found or all of it is mended, with 3 where something is left.
    Needs a token with scope admin.
    """
    from leadhand.cli.connecting import connected

    with connected() as client:
        view = client.fsck(repair=repair)
    if as_json:
        echo_json(view)
    else:
        for line in fsck_lines(view):
            click.echo(line)
    return FAILED if view.left else DONE


def fsck_lines(view: FsckView) -> list[str]:
    """What was found, kind by kind, and how much was looked at."""
    lines: list[str] = []
    shown: Counter[str] = Counter()
    for finding in view.items:
        shown[finding.kind] += 1
        if shown[finding.kind] > _SHOWN:
            continue
        whose = f"{finding.session}: " if finding.session else ""
        done = "mended" if finding.mended else "found"
        lines.append(f"{done:<6}  {finding.kind}: {plain(whose + finding.what)}")
        if finding.way and finding.way != "leadhand fsck --repair":
            lines.append(f"        way out: {finding.way}")
    lines += [f"... {count - _SHOWN} more of {kind}" for kind, count in shown.items()
              if count > _SHOWN]  # fmt: skip
    return [*lines, _sum(view)]


def _sum(view: FsckView) -> str:
    looked = f"looked at {view.keys} keys of {view.sessions} sessions"
    if not view.found:
        return f"{looked}: all of it agrees"
    way = "; mend with: leadhand fsck --repair" if any(
        finding.way == "leadhand fsck --repair" for finding in view.items
    ) else ""  # fmt: skip
    return f"{looked}: {view.found} found, {view.found - view.left} mended, {view.left} left{way}"
