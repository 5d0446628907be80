"""`leadhand show`, `explain` and `export`: one session, why it waits or ended, and all its data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from leadhand.cli.connect import shows
from leadhand.cli.render.tables import echo_json
from leadhand.cli.render.times import local_time, with_local_times
from leadhand.models.text import block, plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.explain import ExplainView, Wait
    from leadhand.models.views.result import LedgerEntry
    from leadhand.models.views.step import (
        DiffsPage,
        DiffView,
        NoDiffs,
        NoDiffsWhy,
        StepView,
        TurnView,
    )

#: The value of --diff without an iteration.
_ALL = 0
#: The steps of one page.
_STEPS = 200
#: The most child sessions that are shown.
_CHILDREN = 50
#: Why there are no diffs, in the reader's words.
_WHY_NONE: dict[NoDiffsWhy, str] = {
    "no_folder": "the session has no folder",
    "not_ended": "no {doers} ended yet",
    "not_compared": "an attempt{its} ended before {folder} was compared, such as a lost one",
    "no_git": "git is not installed on the worker, so {folder} cannot be compared",
    "slow": "{folder} is too large, or took too long to read",
    "unreadable": "the worker could not read all of {folder}",
    "unchanged": "{changed} changed {file}",
    "replaced": "newer ones replaced the diffs{its} (a session keeps the last 200, and 4 MiB)",
}


@click.command("show")
@click.argument("session")
@click.option(
    "--diff",
    "iteration",
    is_flag=False,
    flag_value=_ALL,
    type=click.IntRange(min=_ALL),
    metavar="[ITERATION]",
    help="Show what doers changed in their folder, in one iteration or in all. With --worktree: all"
    " that differs from where the branch began.",
)
@click.option("--task", metavar="TASK", help="With --diff of a plan: only this task's work.")
@click.option("--unmerged", is_flag=True, help="With --diff of a plan: what is not merged yet.")
@click.option(
    "--output",
    "step",
    metavar="STEP",
    help="What the last attempt at STEP wrote, such as loop~1[2]/do; kept for a day.",
)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def show_command(
    *,
    session: str,
    iteration: int | None,
    task: str | None,
    unmerged: bool,
    step: str | None,
    as_json: bool,
) -> int:
    """Show SESSION with its steps, verdicts and feedback."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.result_text import evidence_lines
    from leadhand.cli.render.session_text import session_lines

    if step is not None:
        return _show_output(session, step, as_json=as_json)
    if task is not None or unmerged:
        if iteration is None:
            raise click.UsageError("--task and --unmerged belong to --diff")
        return _show_plan_diff(session, task, unmerged=unmerged, as_json=as_json)
    if iteration is not None:
        return _show_diffs(session, iteration or None, as_json=as_json)
    with open_client(needs_worker=False) as client:
        view = client.session(session)
        ledger = list(whole_ledger(client, session))
        # The iterations of a single loop have all of its steps.
        steps, turns = all_steps(client, session) if view.kind != "loop" or as_json else ([], [])
        # A child session is created after its parent.
        page = client.sessions(parent=session, created_after=view.created_at, limit=_CHILDREN)
        evidence = client.result(session).evidence if view.status == "completed" else None
    if as_json:
        entries = [entry.model_dump(mode="json") for entry in ledger]
        echo_json({"session": view.model_dump(mode="json"), "ledger": entries,
                   "steps": [step.model_dump(mode="json") for step in steps],
                   "turns": [turn.model_dump(mode="json") for turn in turns],
                   "evidence": evidence and evidence.model_dump(mode="json"),
                   "children": [child.id for child in page.items]})  # fmt: skip
        return 0
    for line in (*session_lines(view, ledger, page.items, steps, turns), *evidence_lines(evidence)):
        click.echo(line)
    return 0


def _show_output(session: str, step: str, *, as_json: bool) -> int:
    from leadhand.cli.connect import open_client, tell
    from leadhand.cli.render.output_text import attempt_lines

    with open_client(needs_worker=False) as client:
        found = client.output(session, step=step, limit=1)
        known = [] if found else [view.address for view in client.output(session, limit=32)]
    if as_json:
        echo_json({"items": [view.model_dump(mode="json") for view in found]})
        return 0
    for view in found:
        for line in attempt_lines(view):
            click.echo(line)
    if not found:
        others = f"; output is kept of: {', '.join(dict.fromkeys(known))}" if known else ""
        tell(f"no output of step {step!r} is kept{others}")
    return 0 if found else 1


def _show_plan_diff(session: str, task: str | None, *, unmerged: bool, as_json: bool) -> int:
    from leadhand.cli.connect import open_client
    from leadhand.cli.worktree import show_plan_diff

    with open_client(needs_worker=False) as client:
        return show_plan_diff(client, session, task, unmerged=unmerged, as_json=as_json)


def _show_diffs(session: str, iteration: int | None, *, as_json: bool) -> int:
    from leadhand.cli.connect import open_client
    from leadhand.cli.worktree import show_plan_diff

    with open_client(needs_worker=False) as client:
        if iteration is None and client.session(session).kind == "plan":
            return show_plan_diff(client, session, None, unmerged=False, as_json=as_json)
        ledger = list(whole_ledger(client, session))
        page = client.diffs(session, iteration=iteration)
        has_worktree = client.session(session).worktree is not None
        found = in_order_of_time(_all_diffs(client, session, iteration, page), ledger)
    if has_worktree and iteration is None:
        # Each is against the merge base, so that the newest has all the work.
        found = [diff for diff in found if diff.by == "doer"][-1:]
    if as_json:
        none = page.none.model_dump(mode="json") if page.none else None
        echo_json({"items": [diff.model_dump(mode="json") for diff in found], "none": none})
        return 0
    for diff in found:
        whose = ", changed while checkers ran" if diff.by == "checkers" else ""
        click.echo(f"# {plain(diff.address)}, iteration {diff.iteration}{whose}")
        for line in block(diff.patch):
            click.echo(line)
    if not found:
        click.echo(why_no_diffs(page.none, ledger, iteration))
    return 0


def in_order_of_time(diffs: Iterable[DiffView], ledger: Iterable[LedgerEntry]) -> list[DiffView]:
    """Sorts diffs by when their iterations began; those of running iterations come last."""
    began: dict[str, int] = {}
    for entry in ledger:
        began |= dict.fromkeys((entry.doer or "", f"{entry.address}/judge"), entry.started_ms or 0)
    return sorted(diffs, key=lambda diff: (diff.address not in began, began.get(diff.address, 0)))


def why_no_diffs(none: NoDiffs | None, ledger: Iterable[LedgerEntry], iteration: int | None) -> str:
    """Returns a sentence on why an iteration, or the whole session, has no stored diffs."""
    ended = {entry.iteration for entry in ledger}
    if none is None:  # only checkers have changed files
        return "no changes are stored"
    if none.why == "not_ended" and iteration is not None and ended and iteration not in ended:
        return f"no iteration {iteration} has ended; the last one is {max(ended)}"
    folder = plain(none.folder or "the folder")
    why = _WHY_NONE[none.why].format(
        folder=folder,
        doers="iteration has" if iteration is None else f"doer of iteration {iteration} has",
        changed="no iteration" if iteration is None else f"iteration {iteration}",
        file="a file" if iteration is None else "no file",
        its="" if iteration is None else f" of iteration {iteration}",
    )
    return f"no changes are stored: {why}"


def _all_diffs(
    client: Client, session: str, iteration: int | None, page: DiffsPage
) -> Iterator[DiffView]:
    yield from page.items
    while page.next is not None:
        page = client.diffs(session, iteration=iteration, cursor=page.next)
        yield from page.items


def all_steps(client: Client, session: str) -> tuple[list[StepView], list[TurnView]]:
    """Returns all steps and all turns of a session, fetched page by page."""
    page = client.steps(session, limit=_STEPS)
    steps, turns = [*page.items], [*page.turns]
    while page.next is not None:
        page = client.steps(session, limit=_STEPS, cursor=page.next)
        steps += page.items
        turns += page.turns
    return steps, turns


def whole_ledger(client: Client, session: str) -> Iterator[LedgerEntry]:
    """Yields the record of every iteration of a session (its ledger), fetched page by page."""
    page = client.ledger(session)
    yield from page.items
    while page.next is not None:
        page = client.ledger(session, cursor=page.next)
        yield from page.items


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


@click.command("export")
@click.argument("session")
@click.option(
    "--to", "path", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
    help="Write to FILE, replacing it; by default to standard output.",
)  # fmt: skip
@click.option(
    "--part", type=click.Choice(["all", "ledger"]), default="all", show_default=True,
    help="Everything as one JSON object, or the ledger alone as JSON Lines.",
)  # fmt: skip
def export_command(*, session: str, path: Path | None, part: Literal["all", "ledger"]) -> int:
    """Write all data of SESSION to a file or standard output.

    Its data is deleted when its retention ends.
    """
    from leadhand.cli.connect import open_client, tell

    with open_client(needs_worker=False) as client:
        text = client.export_text(session, part)
    if path is None:
        click.echo(text, nl=not text.endswith("\n") and bool(text))
        return 0
    _replace(path, text)
    tell(f"session {session} is in {path}")
    return 0


def _replace(path: Path, text: str) -> None:
    """Replace the file atomically."""
    draft = path.with_name(f".{path.name}.part")
    try:
        draft.write_text(text, encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise click.FileError(str(path), error.strerror or str(error)) from error
