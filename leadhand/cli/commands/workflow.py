"""`leadhand workflow`: runs a Python file that builds and runs workflows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.budget_options import budget_options, pop_budget
from leadhand.cli.child_options import child_options
from leadhand.cli.loop_options import loop_options
from leadhand.cli.session_settings import SessionSettings
from leadhand.cli.worktree_option import worktree_field, worktree_option

if TYPE_CHECKING:
    from leadhand.cli.run_workflow import Conductor, Overrides
    from leadhand.contract.submissions import ParentEnd


@click.command("workflow")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--doer", metavar="CMD", help="Use this command as the doer of all phases.")
@click.option("--agent", metavar="NAME", help="Use this agent as the doer of all phases.")
@click.option("--cwd", metavar="DIR", help="The folder to work in (that of the workflow in FILE).")
@worktree_option
@click.option("--label", metavar="TEXT", help="The session's label.")
@loop_options
@budget_options
@child_options
@click.option(
    "--detach",
    is_flag=True,
    help="Print the id of the session of the first workflow, and exit; FILE runs up to there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def workflow_command(
    *,
    file: Path,
    detach: bool,
    as_json: bool,
    key: str | None,
    on_parent_end: ParentEnd | None,
    **given: Any,
) -> int:
    """Run FILE and show the workflows that it runs.

    FILE runs as with `python FILE`: it builds a Workflow and calls its run() itself. Its own folder
    is searched first for imports. The options replace the settings in FILE. With a key,
    the second workflow of FILE has the key NAME-2, and so on.

    Inside a doer or checker, the sessions are children of the running one.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.load_file import run_file
    from leadhand.cli.run_workflow import Conductor

    overrides = _overrides(**given)
    compile_first(file)
    with open_client(needs_worker=True) as client:
        conductor = Conductor(
            client,
            overrides=overrides,
            detach=detach,
            as_json=as_json,
            key=key,
            on_parent_end=on_parent_end,
        )
        code = run_file(file, conductor=conductor, quiet=as_json or detach)
    return _end(conductor, file, code)


def _overrides(
    *,
    doer: str | None,
    agent: str | None,
    cwd: str | None,
    label: str | None,
    worktree: bool,
    no_prepare: bool,
    **others: Any,
) -> Overrides:
    """The validated options. Raises ClickException."""
    from pydantic import ValidationError

    from leadhand.callables import as_doer
    from leadhand.cli.run_workflow import Overrides
    from leadhand.models.validation_messages import first_error
    from leadhand.run import working_folder

    budget = pop_budget(others)
    settings = SessionSettings(cwd)
    quarantine = settings.read_quarantine()
    held: dict[str, object] = {"quarantine": quarantine} if quarantine else {}
    held |= settings.read_leave_out()
    held["protected"] = [*settings.read_protected(), *(others.pop("protected", None) or ())]
    try:
        return Overrides.model_validate(
            {
                "doer": as_doer(doer, agent),
                "cwd": None if cwd is None else working_folder(cwd),
                "label": label,
                "worktree": worktree_field(cwd, worktree=worktree, no_prepare=no_prepare),
                "budget": budget,
                "of_phases": {k: v for k, v in others.items() if v is not None} | held,
            }
        )
    except ValidationError as error:
        raise click.ClickException(first_error(error)) from None
    except ValueError as error:
        raise click.ClickException(str(error)) from None


def compile_first(file: Path) -> None:
    """Raises ClickException for a file that is not valid Python, before services are started."""
    from leadhand.cli.load_file import file_error

    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError) as error:
        raise file_error(file, error) from None


def _end(conductor: Conductor, file: Path, code: int) -> int:
    from leadhand.cli.exit_codes import worst
    from leadhand.cli.render.tables import echo_json

    if conductor.detached is not None:
        if conductor.as_json:
            echo_json(conductor.detached)
        else:
            click.echo(conductor.detached.id)
        return code
    results = conductor.results
    if not results and not code:
        raise click.ClickException(f"{file} ran no workflow; call run() on one in it")
    if conductor.as_json:
        workflows = [result.model_dump(mode="json") for result in results]
        echo_json(workflows[0] if len(workflows) == 1 else {"workflows": workflows})
    sys.stdout.flush()
    return worst(result.status for result in results) or code
