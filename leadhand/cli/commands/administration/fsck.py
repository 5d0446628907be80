"""`leadhand fsck`: checks that the records in Redis and the broker agree, and repairs them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import click

from leadhand.cli.exit_codes import DONE, FAILED
from leadhand.cli.render.tables import echo_json, plural
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.views import FsckView

#: How many findings of one kind are shown.
_SHOWN = 20


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def fsck_command(*, repair: bool, as_json: bool) -> int:
    """Cross-check sessions, deadlines, indexes, locks and queues.

    The fleet may keep running: each finding is checked again, and repaired, in one atomic call.
    Exits with 0 if there are no findings or all are repaired, with 3 if any is left. Needs a token
    with the scope admin.
    """
    from leadhand.cli.connect import open_client

    with open_client() as client:
        view = client.fsck(repair=repair)
    if as_json:
        echo_json(view)
    else:
        for line in fsck_lines(view):
            click.echo(line)
    return FAILED if view.left else DONE


def fsck_lines(view: FsckView) -> list[str]:
    """The findings, at most _SHOWN per kind, and a summary."""
    lines: list[str] = []
    shown: Counter[str] = Counter()
    for finding in view.items:
        shown[finding.kind] += 1
        if shown[finding.kind] > _SHOWN:
            continue
        whose = f"{finding.session}: " if finding.session else ""
        done = "fixed" if finding.mended else "found"
        lines.append(f"{done:<6}  {finding.kind}: {plain(whose + finding.what)}")
        if finding.way and finding.way != "leadhand fsck --repair":
            lines.append(f"        fix: {finding.way}")
    lines += [f"... {count - _SHOWN} more of {kind}" for kind, count in shown.items()
              if count > _SHOWN]  # fmt: skip
    return [*lines, _sum(view)]


def _sum(view: FsckView) -> str:
    looked = f"checked {plural(view.keys, 'key')} of {plural(view.sessions, 'session')}"
    if not view.found:
        return f"{looked}: no findings"
    way = "; repair with: leadhand fsck --repair" if any(
        finding.way == "leadhand fsck --repair" for finding in view.items
    ) else ""  # fmt: skip
    return f"{looked}: {view.found} found, {view.found - view.left} fixed, {view.left} left{way}"
