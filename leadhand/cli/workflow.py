"""`leadhand workflow`: a Python file that runs workflows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from leadhand.cli.conducting import Conductor


@click.command("workflow")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--doer", metavar="CMD", help="Do the work with this command, whatever FILE says.")
@click.option("--agent", metavar="NAME", help="Do the work with this agent, whatever FILE says.")
@click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
def workflow_command(*, file: Path, doer: str | None, agent: str | None, as_json: bool) -> int:
    """Run FILE, and show the workflows that it runs.

    FILE runs as `python FILE` would: it builds a Workflow and calls its run() itself, and its
    own folder is searched for imports first.
    """
    from leadhand.callables import as_doer
    from leadhand.cli.conducting import Conductor
    from leadhand.cli.connecting import connected
    from leadhand.cli.running_file import run_file

    try:
        substitute = as_doer(doer, agent)
    except ValueError as error:
        raise click.ClickException(str(error)) from None
    compile_first(file)
    with connected() as client:
        conductor = Conductor(client, substitute=substitute, as_json=as_json)
        code = run_file(file, conductor=conductor, quiet=as_json)
    return _end(conductor, file, code)


def compile_first(file: Path) -> None:
    """Refuse a file that is no Python before anything is started."""
    from leadhand.cli.running_file import broken

    try:
        compile(file.read_bytes(), str(file), "exec")
    except (SyntaxError, ValueError) as error:
        raise broken(file, error) from None


def _end(conductor: Conductor, file: Path, code: int) -> int:
    from leadhand.cli.codes import worst
    from leadhand.cli.tables import echo_json

    results = conductor.results
    if not results and not code:
        raise click.ClickException(f"{file} ran no workflow; let it call run() on one")
    if conductor.as_json:
        workflows = [result.model_dump(mode="json") for result in results]
        echo_json(workflows[0] if len(workflows) == 1 else {"workflows": workflows})
    sys.stdout.flush()
    return worst(result.status for result in results) or code
