"""Options of the commands of stacks: which stack, and which workflow session."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.stack.scope import Scope

Command = Callable[..., Any]


def which_stack(command: Command) -> Command:
    """Adds the options that select a stack to a command, which gets it as `scope`."""
    folder = click.option(
        "--folder", type=click.Path(exists=True, file_okay=False, path_type=Path),
        default=".", metavar="DIR", help="The folder whose stack it is; by default this one.",
    )  # fmt: skip
    name = click.option("--stack", "name", metavar="NAME", help="A stack with a name instead.")
    agent = click.option(
        "--agent-session", metavar="ID",
        help="The stack of this session of an agent, where several agents work in one folder.",
    )  # fmt: skip

    @functools.wraps(command)
    def with_scope(
        *args: Any, folder: Path, name: str | None, agent_session: str | None, **more: Any
    ) -> Any:
        return command(*args, scope=scope_of(folder, name, agent_session), **more)

    return folder(name(agent(with_scope)))


def which_workflow(command: Command) -> Command:
    """Adds the options that select a workflow session to a command."""
    workflow = click.option(
        "--workflow", metavar="ID", help="A workflow session on the stack; by default the top.",
    )  # fmt: skip
    return which_stack(workflow(command))


as_json = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")


def scope_of(folder: Path, name: str | None, agent_session: str | None = None) -> Scope:
    """Returns the stack that the options select. Raises ClickException for a bad name."""
    from leadhand.stack.scope import find_scope

    try:
        return find_scope(folder, name, agent_session=agent_session)
    except ValueError as error:
        raise click.ClickException(f"the stack: {error}") from None


@contextmanager
def open_stack(scope: Scope) -> Iterator[Client]:
    """Opens a client, and moves the stack of a folder here that was renamed to this one."""
    from leadhand.cli.connect import open_client
    from leadhand.stack.mirror import FILES
    from leadhand.stack.moving import adopt_stacks

    with open_client(needs_worker=True) as client:
        if scope.folder is not None:
            why = adopt_stacks(client, Path(scope.folder, FILES), scope)
            if why is not None:
                click.echo(f"leadhand: {why}", err=True)
        yield client
