"""`leadhand report`: lets a body report about the task of a plan that its session carries out."""

from __future__ import annotations

from pathlib import Path

import click

from leadhand.cli.render.tables import echo_json


@click.command("report")
@click.argument("status")
@click.option("--pr-url", metavar="URL", help="The pull request with the work.")
@click.option("--notes", metavar="TEXT", help="Notes for the team lead.")
@click.option(
    "--propose",
    "proposals",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Propose the tasks in this JSON or TOML file for the plan.",
)
@click.option("--why", metavar="TEXT", help="Why the plan should get the proposed tasks.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def report_command(
    *,
    status: str,
    pr_url: str | None,
    notes: str | None,
    proposals: Path | None,
    why: str | None,
    as_json: bool,
) -> int:
    """Report the STATUS of this session's task to its plan.

    For doers and checkers of a plan's tasks. STATUS is pending, in_progress, completed, failed or
    blocked. A task counts as done only once its checkers accept it.
    """
    from leadhand.cli.connect import open_client
    from leadhand.settings import ClientSettings

    session = ClientSettings.from_env().session
    if session is None:
        raise click.ClickException(
            "LEADHAND_SESSION not set: only a doer or checker inside a session can report;"
            " from outside use `leadhand plan edit ID`"
        )
    if why is not None and proposals is None:
        raise click.UsageError("--why explains the tasks of --propose; give that too")
    proposed = _proposals(proposals, why)
    with open_client(needs_worker=True) as client:
        view = client.report(session, status, pr_url=pr_url, notes=notes, proposals=proposed)
    if as_json:
        echo_json(view)
        return 0
    how = "was reported before" if view.repeated else "is reported"
    if not view.task:
        click.echo(f"{view.status} is in the inbox of session {view.session}")
    else:
        click.echo(f"task {view.task} of session {view.session} {how} as {view.status}")
    return 0


def _proposals(file: Path | None, why: str | None) -> list[dict[str, object]]:
    from leadhand.cli.plans.tasks_file import TasksInvalid, planned_tasks
    from leadhand.models.toml_file import TomlUnreadable

    if file is None:
        return []
    try:
        return [{"task": task, "why": why or ""} for task in planned_tasks(file, alone=False)]
    except (TasksInvalid, TomlUnreadable) as error:
        raise click.ClickException(str(error)) from None
