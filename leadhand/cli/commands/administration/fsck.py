"""`leadhand fsck`: checks that the records in Redis and the broker agree, and repairs them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from leadhand.cli.exit_codes import DONE, FAILED
from leadhand.cli.render.tables import echo_json, plural
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.audit import FolderFindings, FsckView

#: How many findings of one kind are shown.
_SHOWN = 20
#: The kind of the note that no worker of a place has compared its folders.
_UNCHECKED = "worktrees_unchecked"
#: How long a worker may take to begin and to compare the folders of its place, in seconds.
_PATIENCE_S = 60.0


@click.command("fsck")
@click.option("--repair", is_flag=True, help="Repair what can be repaired.")
@click.option("--no-worktrees", is_flag=True, help="Leave out the folders at the workers' places.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def fsck_command(*, repair: bool, no_worktrees: bool, as_json: bool) -> int:
    """Cross-check sessions, deadlines, locks, queues and worktrees.

    The fleet may keep running: each finding is checked again, and repaired, in one atomic call. A
    worker at each place compares the folders of tasks and sessions with their records. A folder
    with work that is nowhere else is named and stays, also with --repair.

    Exits with 0 if there are no findings or all are repaired, with 3 if any is left. Folders that
    no worker compared in time are named, and are no finding. Needs a token with the scope admin.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        view = client.fsck(repair=repair)
        if not no_worktrees:
            for found in _audit_folders(client, repair=repair):
                view = _with_folders(view, found)
    if as_json:
        echo_json(view)
    else:
        for line in fsck_lines(view):
            click.echo(line)
    return FAILED if view.left else DONE


def _audit_folders(client: Client, *, repair: bool) -> Iterator[FolderFindings]:
    """What a worker at each place finds about its folders."""
    from pydantic import ValidationError

    from leadhand.errors import LeadhandError
    from leadhand.models.views.audit import Finding, FolderFindings

    for one in client.audit_worktrees(repair=repair).items:
        why = f"no worker at {one.place} did so within {_PATIENCE_S:.0f} s"
        try:
            ended = client.wait(one.session, timeout=_PATIENCE_S)
            if ended.reason is not None:
                why = ended.reason.text
            yield FolderFindings.model_validate_json(ended.result_text)
        except (TimeoutError, ValidationError):
            what = f"the folders at {one.place} were not compared: {why}"
            way = "leadhand fsck, once a worker there has a free slot"
            finding = Finding(kind=_UNCHECKED, session=None, what=what, way=way)
            yield FolderFindings(items=[finding], found=0, left=0)  # it is no damage
        with suppress(LeadhandError):  # it is of no use any more
            client.delete(one.session, force=True)


def _with_folders(view: FsckView, found: FolderFindings) -> FsckView:
    return view.model_copy(
        update={
            "items": [*view.items, *found.items],
            "found": view.found + found.found,
            "left": view.left + found.left,
            "folders": view.folders + found.folders,
        }
    )


def fsck_lines(view: FsckView) -> list[str]:
    """Formats the findings of an audit, at most _SHOWN per kind, with a summary."""
    lines: list[str] = []
    shown: Counter[str] = Counter()
    for finding in view.items:
        shown[finding.kind] += 1
        if shown[finding.kind] > _SHOWN:
            continue
        whose = f"{finding.session}: " if finding.session else ""
        done = "fixed" if finding.mended else "note" if finding.kind == _UNCHECKED else "found"
        lines.append(f"{done:<6}  {finding.kind}: {plain(whose + finding.what)}")
        if finding.way and finding.way != "leadhand fsck --repair":
            lines.append(f"        fix: {finding.way}")
    lines += [f"... {count - _SHOWN} more of {kind}" for kind, count in shown.items()
              if count > _SHOWN]  # fmt: skip
    return [*lines, _sum(view)]


def _sum(view: FsckView) -> str:
    looked = f"checked {plural(view.keys, 'key')} of {plural(view.sessions, 'session')}"
    if view.folders:
        looked += f" and {plural(view.folders, 'folder')}"
    if not view.found:
        return f"{looked}: no findings"
    way = "; repair with: leadhand fsck --repair" if any(
        finding.way == "leadhand fsck --repair" for finding in view.items
    ) else ""  # fmt: skip
    return f"{looked}: {view.found} found, {view.found - view.left} fixed, {view.left} left{way}"
