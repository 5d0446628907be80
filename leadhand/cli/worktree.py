"""`leadhand worktree`: lists, shows and removes folders; applies and diffs the work of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from leadhand.cli.group import Group
from leadhand.cli.render.tables import echo_json, plural, table
from leadhand.models.text import block, plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.views.plan import CleaningView, WorktreeView
    from leadhand.models.views.result import ResultView

_NO_FOLDERS = "no folders: the tasks share the plan's, or none has started"
_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
#: The exit code if a branch was left alone.
_FAILED = 3


@click.group("worktree", cls=Group, context_settings={"max_content_width": 100})
def worktree_command() -> None:
    """Show and remove the folders of tasks and sessions."""


@worktree_command.command("list")
@click.argument("session", required=False)
@_JSON
def worktree_list_command(*, session: str | None, as_json: bool) -> int:
    """List the folders of the tasks of SESSION's plan, or its own; by default of all sessions.

    Without SESSION: those of all sessions that were not removed.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        if session is not None:
            found = client.worktrees(session)
        else:
            found = [one for one in client.all_worktrees() if not one.cleaned]
    if as_json:
        echo_json({"items": [one.model_dump(mode="json") for one in found]})
        return 0
    nothing = "no folders" if session is None else _NO_FOLDERS
    for line in worktree_lines(found, nothing):
        click.echo(line)
    return 0


@worktree_command.command("show")
@click.argument("session")
@click.argument("task", required=False)
@_JSON
def worktree_show_command(*, session: str, task: str | None, as_json: bool) -> int:
    """Show the folders of TASK of the plan of SESSION, the newest run last.

    Without TASK: of all tasks, or that of SESSION itself.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        if task is not None:
            client.plan_task(session, task)  # raises TaskUnknown with what was probably meant
        found = [one for one in client.worktrees(session) if task in (None, one.task)]
    if as_json:
        echo_json({"items": [one.model_dump(mode="json") for one in found]})
        return 0
    for one in found:
        for line in _detail(one):
            click.echo(line)
    if not found:
        whose = "" if task is None else f"task {task} has "
        click.echo(f"{whose}no folder of its own")
    return 0


@worktree_command.command("clean")
@click.argument("session")
@click.argument("tasks", metavar="[TASK]...", nargs=-1)
@click.option(
    "--force",
    is_flag=True,
    help="Also with work that is nowhere else: changes are committed to the branch, which stays;"
    " a copy is deleted.",
)
@_JSON
def worktree_clean_command(
    *, session: str, tasks: tuple[str, ...], force: bool, as_json: bool
) -> int:
    """Remove the folders of ended tasks of the plan of SESSION, except those with unmerged work.

    With TASKS: only theirs. If SESSION is no plan: its own folder.

    A folder stays if it has changes, or if its branch has commits that the branch from which it
    started has not.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        done = clean_folders(client, session, tasks, force=force)
    if as_json:
        echo_json(
            {
                "cleaned": [one.model_dump(mode="json") for one in done.cleaning],
                "failed": [one.model_dump(mode="json") for one in done.failed],
            }
        )
    else:
        for line in cleaned_lines(done):
            click.echo(line)
    return 3 if done.failed else 0


def clean_folders(
    client: Client, session: str, tasks: tuple[str, ...], *, force: bool
) -> CleaningView:
    """Starts the removal of folders, waits for it, and returns what happened to each."""
    started = client.clean_worktrees(session, tasks, force=force)
    if started.session is None:
        return started
    ended = client.wait(started.session)
    why = (
        ended.reason.text
        if ended.reason is not None
        else f"session {started.session} is {ended.status}"
    )
    now = {(one.task, one.run): one for one in client.worktrees(session)}
    seen = [now.get((one.task, one.run), one) for one in started.cleaning]
    left = [one for one in seen if not one.cleaned]
    failed = [one.model_copy(update={"kept": one.kept or why}) for one in left]
    cleaned = [one for one in seen if one.cleaned]
    return started.model_copy(update={"cleaning": cleaned, "failed": [*started.failed, *failed]})


def worktree_lines(found: list[WorktreeView], nothing: str = _NO_FOLDERS) -> Iterator[str]:
    """Formats a table of the folders of tasks and sessions; the line `nothing` for none."""
    if not found:
        yield nothing
        return
    rows = [
        [one.task or "-", str(one.run), one.session,
         "cleaned" if one.cleaned else one.status or "deleted", one.branch or "-", one.folder]
        for one in found
    ]  # fmt: skip
    yield from table(["TASK", "RUN", "SESSION", "STATUS", "BRANCH", "FOLDER"], rows)


def cleaned_lines(done: CleaningView) -> Iterator[str]:
    """Formats which folders were removed, and which were kept and why."""
    for one in done.cleaning:
        yield f"removed {one.folder}"
    for one in done.failed:
        yield f"kept {one.folder}: {one.kept}"
    if not done.cleaning and not done.failed:
        yield "nothing to remove"
    elif done.failed:
        yield f"{plural(len(done.cleaning), 'folder')} removed, {len(done.failed)} kept"


def _detail(one: WorktreeView) -> Iterator[str]:
    kind = "worktree" if one.branch else "copy"
    state = "removed" if one.cleaned else f"session {one.session} is {one.status or 'deleted'}"
    of_what = f" of task {one.task}, run {one.run}" if one.task else ""
    yield f"{kind}{of_what}: {state}"
    yield f"  folder: {one.folder}" + (f" at {one.place}" if one.place else "")
    if one.branch:
        yield f"  branch: {one.branch}, from {one.base}"
        yield f"  see its work with: git diff {(one.base or '')[:12]} {one.branch}"
    if one.kept:
        yield f"  kept: {one.kept}"


@click.argument("session")
@click.option("--branch", metavar="NAME", help="Another branch than the one checked out.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def apply_plan(*, session: str, branch: str | None, as_json: bool) -> int:
    """Fast-forward your branch to the merged work of the plan of SESSION.

    It is the branch that is checked out in the plan's folder, if its working tree is clean. A
    branch that is checked out elsewhere, has other commits or is protected (git config
    leadhand.protected) is left as it is, with the reason.
    """
    from leadhand.cli.connect import open_client

    with open_client(needs_worker=True) as client:
        result = _end_of(client, client.apply_plan(session, branch=branch).session)
    why = _why_not(result)
    if as_json:
        echo_json({"applied": not why, "why": why, "session_id": result.session_id})
    else:
        click.echo(f"not applied: {why}" if why else plain(result.result_text))
    return _FAILED if why else 0


def show_plan_diff(
    client: Client, session: str, task: str | None, *, unmerged: bool, as_json: bool
) -> int:
    """Gets and prints the diff of a plan or task, or what is unmerged; returns an exit code."""
    result = _end_of(client, client.diff_plan(session, task=task, unmerged=unmerged).session)
    why = _why_not(result)
    if as_json:
        echo_json({"diff": result.result_text, "why": why})
    elif why:
        click.echo(f"no diff: {why}")
    else:
        for line in block(result.result_text):
            click.echo(line)
        if not result.result_text:
            click.echo("no changes")
    return _FAILED if why else 0


def _end_of(client: Client, session: str) -> ResultView:
    return client.wait(session)


def _why_not(result: ResultView) -> str:
    """Why it did not succeed, as its step says; empty if it did."""
    if result.status == "completed":
        return ""
    reason = result.reason
    while reason is not None and reason.beneath is not None:
        reason = reason.beneath
    return plain(reason.text, most=1000) if reason is not None else f"it is {result.status}"
