"""`leadhand queues`, `workers`, `top`, `limit`, `stats`, `store` and `fsck`: the fleet."""

from __future__ import annotations

import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING

import click

from leadhand.cli.connect import shows
from leadhand.cli.exit_codes import DONE, FAILED
from leadhand.cli.group import Group
from leadhand.cli.render.tables import echo_json, plural, table
from leadhand.cli.render.terminal import raw
from leadhand.cli.render.times import clock_time
from leadhand.models.text import escape_controls, plain

if TYPE_CHECKING:
    from rich.text import Text

    from leadhand.client.client import Client
    from leadhand.models.views.fleet import (
        FleetView,
        FolderFindings,
        FsckView,
        QueueView,
        StatisticsView,
        StoreView,
        WorkerView,
    )

#: Days that the server keeps.
MOST_DAYS = 400
_AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
#: How many findings of one kind are shown.
_SHOWN = 20
#: The kind of the note that no worker of a place has compared its folders.
_UNCHECKED = "worktrees_unchecked"
#: How long a worker may take to begin and to compare the folders of its place, in seconds.
_PATIENCE_S = 60.0


@click.command("queues")
@shows("queues", needs_worker=True, with_json=True)
def queues_command(queues: list[QueueView]) -> list[str]:
    """List the queues with their messages, steps and workers."""
    from leadhand.cli.render.fleet_text import queue_lines

    return queue_lines(queues)


@click.command("workers")
@shows("workers", needs_worker=True, with_json=True)
def workers_command(workers: list[WorkerView]) -> list[str]:
    """List the workers with the steps that each is running."""
    from leadhand.cli.render.fleet_text import worker_lines

    return worker_lines(workers, datetime.now(UTC))


@click.command("top")
@click.option("--once", is_flag=True, help="Print once and exit; the default in a pipe.")
@click.option("--every", type=click.FloatRange(0.2, 60), default=1.0, show_default=True,
              help="Seconds between two updates.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def top_command(*, once: bool, every: float, as_json: bool) -> int:
    """Watch the fleet.

    Shows sessions by status, queues, workers, and overdue leases and steps. Ctrl-C leaves and stops
    no session.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.fleet_text import fleet_lines

    with open_client(needs_worker=True) as client:
        if as_json:
            echo_json(client.fleet())
        elif once or not sys.stdout.isatty():
            _echo(fleet_lines(client.fleet()))
        else:
            _live(client, every)
    return 0


def _echo(lines: list[str]) -> None:
    for line in lines:
        click.echo(line)


def _live(client: Client, every_s: float) -> None:
    """Redraw the fleet's state in place until Ctrl-C."""
    from rich.console import Console
    from rich.live import Live

    from leadhand.errors import ApiAway, Unavailable

    with Live(console=Console(file=raw(sys.stdout)), screen=True, auto_refresh=False) as live:
        picture = _Picture(live.console.height)
        try:
            while True:
                try:
                    picture.show(client.fleet(), live.update)
                except (ApiAway, Unavailable) as error:
                    picture.lose(str(error), live.update)
                live.refresh()
                time.sleep(every_s)
        except KeyboardInterrupt:
            return


class _Picture:
    """The latest state on the screen; kept while the API is unreachable."""

    def __init__(self, height: int) -> None:
        self._height = height
        self._lines: list[str] = []

    def show(self, fleet: FleetView, draw: Callable[[Text], None]) -> None:
        from leadhand.cli.render.fleet_text import fleet_lines

        self._lines = fleet_lines(fleet)
        self._draw([f"leadhand top, {clock_time(fleet.at)}; Ctrl-C leaves", *self._lines], draw)

    def lose(self, why: str, draw: Callable[[Text], None]) -> None:
        self._draw([why, *self._lines], draw)

    def _draw(self, lines: list[str], draw: Callable[[Text], None]) -> None:
        from rich.text import Text

        text = escape_controls("\n".join(lines[: self._height]))
        draw(Text(text, no_wrap=True, overflow="ellipsis"))


@click.group("limit", cls=Group, context_settings={"max_content_width": 100})
def limit_command() -> None:
    """List, set and remove limits.

    A KEY is agent:NAME, model:NAME, queue:NAME, or key:NAME for doers with that concurrency_key. A
    limit holds across all workers. A step that waits for it uses no worker slot.
    """


@limit_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def list_(*, as_json: bool) -> int:
    """List all limits, by key."""
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=False) as client:
        found = client.limits()
    if as_json:
        echo_json({"items": [limit.model_dump(mode="json") for limit in found], "next": None})
        return 0
    head = ["KEY", "CONCURRENCY", "PER MINUTE"]
    rows = [[limit.key, _shown(limit.concurrency), _shown(limit.per_minute)] for limit in found]
    for line in table(head, rows) if rows else ["no limits; set one with `leadhand limit set`"]:
        click.echo(line)
    return 0


@limit_command.command("set")
@click.argument("key")
@click.option(
    "--concurrency", type=click.IntRange(1, 100_000), metavar="N", help="The most at once."
)
@click.option(
    "--per-minute", type=click.FloatRange(0, 100_000, min_open=True), metavar="N",
    help="The most that start per minute.",
)  # fmt: skip
def set_(*, key: str, concurrency: int | None, per_minute: float | None) -> int:
    """Limit how many attempts with KEY run at once, start per minute, or both."""
    from leadhand.cli.connect import open_client

    if concurrency is None and per_minute is None:
        raise click.UsageError("give --concurrency, --per-minute or both")
    with open_client(needs_worker=False) as client:
        limit = client.set_limit(key, concurrency=concurrency, per_minute=per_minute)
    at_once = f"{limit.concurrency} at once" if limit.concurrency is not None else ""
    begin = f"{limit.per_minute:g} a minute" if limit.per_minute is not None else ""
    click.echo(f"{limit.key} is limited to {' and '.join(filter(None, (at_once, begin)))}")
    return 0


@limit_command.command("rm")
@click.argument("key")
@shows("remove_limit", needs_worker=False)
def rm(_: None, *, key: str) -> Iterator[str]:
    """Remove the limit on concurrency and rate of KEY."""
    yield f"{key} is not limited"


def _shown(limit: float | None) -> str:
    return "-" if limit is None else f"{limit:g}"


@click.command("stats")
@click.option("--days", type=click.IntRange(1, MOST_DAYS), default=7, show_default=True,
              help="How many days, today included, by UTC.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def stats_command(*, days: int, as_json: bool) -> int:
    """Show counts and costs of the last days.

    How sessions ended and why, in which iteration loops were accepted, what each checker decided,
    and what each agent cost. Each end counts once, also if its session was deleted since.
    """
    from leadhand.cli.connect import open_client

    last = datetime.now(UTC).date()
    with open_client(needs_worker=False) as client:
        view = client.statistics(last - timedelta(days=days - 1), last)
    if as_json:
        echo_json(view)
    else:
        for line in statistics_lines(view):
            click.echo(line)
    return 0


def statistics_lines(view: StatisticsView) -> Iterator[str]:
    """Formats the statistics of a period as tables with titles, without empty ones."""
    days = (date.fromisoformat(view.last) - date.fromisoformat(view.first)).days + 1
    if not view.days:
        yield f"nothing ended in the last {plural(days, 'day')}"
        return
    yield _head(view)
    for title, lines in (
        ("ENDS OF SESSIONS", _sessions(view)),
        ("ACCEPTED LOOPS", _acceptance(view)),
        ("CHECKERS", _checks(view)),
        ("USED BY AGENTS", _usage(view)),
    ):
        if len(lines) > 1:
            yield ""
            yield title
            yield from lines


def _head(view: StatisticsView) -> str:
    ended = sum(row.count for row in view.sessions)
    completed = sum(row.count for row in view.sessions if row.status == "completed")
    text = f"{view.first} to {view.last} (UTC): {plural(ended, 'session')} ended"
    text += f", {completed} completed ({_share(completed, ended)})" if ended else ""
    if view.cost_per_completed_usd:
        text += f", {view.cost_per_completed_usd:.4f} USD for each"
    return text


def _sessions(view: StatisticsView) -> list[str]:
    rows = [
        [row.kind, row.name, row.status, row.reason, row.count, _mean(row.seconds, row.count)]
        for row in sorted(view.sessions, key=lambda row: -row.count)
    ]
    return table(["KIND", "NAME", "STATUS", "REASON", "SESSIONS", "MEAN"], rows)


def _acceptance(view: StatisticsView) -> list[str]:
    rows = [
        [row.agent, row.iteration, row.reached, row.accepted, _share(row.accepted, row.reached)]
        for row in view.acceptance
    ]
    return table(["AGENT", "ITERATION", "REACHED", "ACCEPTED", "SHARE"], rows)


def _checks(view: StatisticsView) -> list[str]:
    totals: defaultdict[str, int] = defaultdict(int)
    for row in view.checks:
        totals[row.checker] += row.count
    rows = [
        [row.checker, row.verdict, row.count, _share(row.count, totals[row.checker]),
         _mean(row.seconds, row.count)]
        for row in view.checks
    ]  # fmt: skip
    return table(["CHECKER", "VERDICT", "CHECKS", "SHARE", "MEAN"], rows)


def _usage(view: StatisticsView) -> list[str]:
    rows = [
        [row.agent, row.kind, f"{row.cost_usd:.4f}", row.input_tokens, row.output_tokens]
        for row in view.usage
    ]
    return table(["AGENT", "KIND", "USD", "TOKENS IN", "TOKENS OUT"], rows)


def _share(part: int, whole: int) -> str:
    """Formats `part` divided by `whole` in percent, without decimals.

    >>> _share(2, 3)
    '67 %'
    """
    return f"{100 * part / whole:.0f} %"


def _mean(seconds: float, count: int) -> str:
    mean = seconds / count
    return f"{mean:.1f} s" if mean < 100 else f"{mean / 60:.0f} min"


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
    from leadhand.models.views.fleet import Finding, FolderFindings

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
