"""`leadhand ls`, `tree` and `draw`: lists sessions, and shows those below one and its steps."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.connect import shows, tell
from leadhand.cli.render.tables import Column, echo_json, fitted_table
from leadhand.cli.render.times import age
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.session import SessionView, TreeView
    from leadhand.models.views.view import Page

#: Maximum characters of a session's title in the list.
_TITLE = 40
#: Maximum characters of a session's folder, of which the end is shown.
_PATH = 50
#: A narrow terminal has no room for all columns: REASON is left out first.
_COLUMNS = (
    Column("ID"),
    Column("KIND", drop=1),
    Column("NAME", least=12),
    Column("STATUS"),
    Column("ITERATIONS", drop=2),
    Column("CREATED"),
    Column("REASON", least=12, drop=0),
)
_FOLDER = Column("FOLDER", least=12, drop=3)
_WHY = Column("WHY", least=12)


@click.command("ls")
@click.option(
    "--status", metavar="WORD", multiple=True,
    help="Only those of this status, such as active; may be given several times.",
)  # fmt: skip
@click.option(
    "--kind",
    metavar="WORD",
    help="Only those of this kind: loop, workflow, flow, graph, plan or guard.",
)
@click.option("--name", metavar="TEXT", help="Only those of this flow or workflow.")
@click.option("--label", metavar="TEXT", help="Only those with this label.")
@click.option(
    "--folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Only those that were started in this folder or beneath it; by default the current one.",
)
@click.option("--all", "everywhere", is_flag=True, help="Those of all folders.")
@click.option("--reason", metavar="WORD", help="Only those with this reason, such as exit.")
@click.option("--parent", metavar="ID", help="Only those that a step of this session started.")
@click.option(
    "--created-after",
    metavar="TIME",
    help="Only those created at this time or later, such as 2026-11-22T06:00:00Z.",
)
@click.option("--created-before", metavar="TIME", help="Only those created before this time.")
@click.option("--archived", is_flag=True, help="Only archived ones, which are hidden otherwise.")
@click.option("--needs-me", is_flag=True, help="Only those that need a person, with the reason.")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def ls_command(
    *,
    status: tuple[str, ...],
    archived: bool,
    needs_me: bool,
    folder: Path | None,
    everywhere: bool,
    limit: int,
    as_json: bool,
    **wanted: str | None,
) -> int:
    """List the sessions of this folder and those beneath.

    The newest are first. With LEADHAND_URL those of all folders are listed, unless --folder names
    one.
    """
    if folder is not None and everywhere:
        raise click.UsageError("--all lists all folders; leave --folder out")
    if needs_me:
        if status or archived or folder or any(wanted.values()):
            raise click.UsageError("--needs-me takes no filter; leave the others out")
        return _needs_me(limit, as_json=as_json)
    from leadhand.cli.connect import open_client

    here = None if everywhere else _folder(folder)
    if archived:
        wanted["archived"] = "only"
    with open_client(needs_worker=False) as client:
        page = _found(client, limit=limit, status=status or None, folder=here, **wanted)
    if as_json:
        echo_json(page)
        return 0
    none = _none(here, is_filtered=bool(status or any(wanted.values())))
    for line in _table(page.items, with_folder=everywhere) or [none]:
        click.echo(line)
    if page.next is not None:
        click.echo(f"... more than {limit}: see --limit")
    name_damaged(page.damaged)
    return 0


def name_damaged(sessions: Sequence[str]) -> None:
    """Says which sessions a list or tree lacks, and how to repair them."""
    from leadhand.errors import KeyDamaged

    for session in sessions:
        tell(
            f"{plain(session)} is left out, because a key of it in Redis has a wrong type:"
            f" {KeyDamaged.kind.hint}"
        )


def _table(items: Sequence[SessionView], *, with_folder: bool) -> list[str]:
    """The lines of the list; none without sessions."""
    from leadhand.cli.render.session_text import reason_line

    columns = (*_COLUMNS[:-1], _FOLDER, _COLUMNS[-1]) if with_folder else _COLUMNS
    rows = [
        [
            view.id,
            view.kind,
            plain(view.title, most=_TITLE),
            _status(view),
            view.counters.iterations,
            age(view.created_at),
            *([_short(plain(view.folder or "", most=4096))] if with_folder else []),
            reason_line(view),
        ]
        for view in items
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    return list(fitted_table(columns, rows, width)) if rows else []


def _short(path: str) -> str:
    """The end of a path that is too long for its column.

    >>> _short("/a"), _short("/" + "a" * 60)[:3]
    ('/a', '…aa')
    """
    return path if len(path) <= _PATH else "…" + path[1 - _PATH :]


def _folder(given: Path | None) -> str | None:
    """The folder whose sessions are listed; None for those of all folders."""
    from leadhand.settings import ClientSettings

    if given is None and ClientSettings.from_env().url is not None:
        return None
    return os.path.realpath(given or Path.cwd())


def _none(here: str | None, *, is_filtered: bool) -> str:
    """What an empty list says."""
    if here is None:
        return (
            "no sessions match" if is_filtered else "no sessions; start one with `leadhand spawn`"
        )
    matching = " that match" if is_filtered else ""
    return f"no sessions{matching} in {plain(here)} or beneath it; --all lists those of all folders"


def _needs_me(limit: int, *, as_json: bool) -> int:
    """List the sessions that need a person, the newest call first."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        page = client.attention(limit=limit)
    if as_json:
        echo_json(page)
        return 0
    columns = (Column("ID"), Column("NAME", least=12), Column("NEEDS"), Column("SINCE"), _WHY)
    rows = [
        [
            one.session.id,
            plain(one.session.title, most=_TITLE),
            need.kind,
            age(need.since or one.since),
            plain(need.text),
        ]
        for one in page.items
        for need in one.needs
    ]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for line in fitted_table(columns, rows, width) if rows else ["nothing needs you"]:
        click.echo(line)
    if page.next is not None:
        click.echo(f"... more than {limit}: see --limit")
    name_damaged(page.damaged)
    return 0


def _found(client: Client, *, limit: int, **wanted: Any) -> Page[SessionView]:
    """A page of sessions; where the API examined only a part, with those of the next parts."""
    page = client.sessions(limit=limit, **wanted)
    items, examined, goes_on = list(page.items), page.examined or 0, page.partial
    damaged = list(page.damaged)
    if goes_on:
        tell(f"looked at {examined} sessions so far; looking at older ones")
    while page.partial and len(items) < limit:
        page = client.sessions(limit=limit - len(items), cursor=page.next, **wanted)
        items += page.items
        damaged += page.damaged
        examined += page.examined or 0
    if goes_on:
        tell(f"looked at {examined} sessions")
    return page.model_copy(update={"items": items, "examined": examined, "damaged": damaged})


def _status(view: SessionView) -> str:
    """The status, whether it needs attention, and the number of warnings if there are any."""
    count = len(view.warnings)
    facts = ["needs attention"] if view.needs_attention else []
    facts += [f"{count} warning{'s' if count > 1 else ''}"] if count else []
    return f"{view.status} ({', '.join(facts)})" if facts else view.status


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
    from leadhand.cli.render.graph_text import tree_lines

    yield from tree_lines(view)
    name_damaged(view.damaged)


@click.command("draw")
@click.argument("session")
@click.option(
    "--svg", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write an SVG to FILE, replacing it.",
)  # fmt: skip
@click.option(
    "--width", type=click.IntRange(20, 400), help="Characters of a line (the terminal's, or 120)."
)
def draw_command(*, session: str, path: Path | None, width: int | None) -> int:
    """Draw SESSION: its steps in layers, its loops, and what ran."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        if path is None:
            columns = width or max(20, shutil.get_terminal_size((120, 24)).columns)
            click.echo(client.drawing(session, form="text", width=min(400, columns)), nl=False)
            return 0
        text = client.drawing(session)
    write_drawing(path, text)
    tell(f"session {session} is drawn in {path}")
    return 0


def write_drawing(path: Path, text: str) -> None:
    """Writes a drawing's text to a file. Raises click.FileError if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(path), error.strerror or str(error)) from error
