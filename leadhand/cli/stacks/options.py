"""Options of the commands of stacks: which stack, and which workflow session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from leadhand.stack.scope import Scope

Command = Callable[..., Any]


def which_stack(command: Command) -> Command:
    """Adds the options that select a stack to a command."""
    folder = click.option(
        "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=".", metavar="DIR", help="The folder whose stack it is; by default this one.",
    )  # fmt: skip
    name = click.option("--stack", "name", metavar="NAME", help="A stack with a name instead.")
    return folder(name(command))


def which_workflow(command: Command) -> Command:
    """Adds the options that select a workflow session to a command."""
    workflow = click.option(
        "--workflow", metavar="ID", help="A workflow session on the stack; by default the top.",
    )  # fmt: skip
    return which_stack(workflow(command))


as_json = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")


def scope_of(folder: Path, name: str | None) -> Scope:
    """Returns the stack that --folder and --stack select. Raises ClickException for a bad name."""
    from leadhand.stack.scope import find_scope

    try:
        return find_scope(folder, name)
    except ValueError as error:
        raise click.ClickException(f"--stack: {error}") from None
