"""`leadhand stack`: starts, advances and ends nested workflow sessions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli import stack_reading as reading
from leadhand.cli.group import Group
from leadhand.cli.stack_options import as_json, open_stack, which_stack, which_workflow

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.stacks import StackChange
    from leadhand.stack.scope import Scope


@click.group("stack", cls=Group)
def stack_command() -> None:
    """Keep the nested workflows of an agent on a stack.

    Each folder has a stack, which all processes on a host share. The workflow session on top is the
    active one. The commands change it unless --workflow names another one.
    """


@stack_command.command("start")
@click.argument("workflow", metavar="JOB/WORKFLOW")
@click.argument("step")
@click.option("--goal", default="", metavar="TEXT", help="What the workflow is to achieve.")
@click.option("--instance", metavar="TEXT", help="What it works on, if it runs for several things.")
@which_stack
@as_json
def start_command(
    *, workflow: str, step: str, goal: str, instance: str | None, scope: Scope,
    as_json: bool,
) -> int:  # fmt: skip
    """Start a workflow session on top of the stack, at STEP."""
    job, _, flow = workflow.partition("/")
    if not job or not flow:
        raise click.UsageError(f"{workflow!r} has no '/'; give JOB/WORKFLOW")

    def start(client: Client, stack: str) -> StackChange:
        return client.start_workflow(
            stack, job, flow, step, goal=goal, instance_id=instance, folder=scope.folder,
            place=scope.place,
        )  # fmt: skip

    return _change(start, scope, as_json=as_json)


@stack_command.command("begin")
@click.argument("step")
@which_workflow
@as_json
def begin_command(*, step: str, workflow: str | None, scope: Scope, as_json: bool) -> int:
    """Record the start of STEP, which becomes the current one."""
    return _change(
        lambda client, stack: client.start_step(stack, step, workflow=workflow),
        scope, as_json=as_json,
    )  # fmt: skip


@stack_command.command("done")
@click.argument("step")
@click.option(
    "--output", "outputs", multiple=True, metavar="NAME=TEXT",
    help="An output, such as the path of a file; may be given several times.",
)  # fmt: skip
@click.option("--outputs", "document", metavar="JSON", help="All outputs as a JSON object.")
@click.option("--notes", metavar="TEXT", help="What the next steps need to know.")
@which_workflow
@as_json
def done_command(
    *, step: str, outputs: tuple[str, ...], document: str | None, notes: str | None,
    workflow: str | None, scope: Scope, as_json: bool,
) -> int:  # fmt: skip
    """Record the end of STEP with its outputs."""
    given = _outputs(outputs, document)
    return _change(
        lambda client, stack: client.complete_step(stack, step, given, notes, workflow=workflow),
        scope, as_json=as_json,
    )  # fmt: skip


@stack_command.command("attempt")
@click.argument("step")
@which_workflow
def attempt_command(*, step: str, workflow: str | None, scope: Scope) -> int:
    """Add 1 to the quality attempts of STEP, and print their number."""
    from leadhand.stack.mirror import update_files

    with open_stack(scope) as client:
        change = client.record_quality_attempt(scope.stack, step, workflow=workflow)
    update_files(scope, change)
    click.echo(change.quality_attempts)
    return 0


@stack_command.command("advance")
@click.argument("step")
@click.argument("index", type=click.IntRange(0))
@which_workflow
@as_json
def advance_command(
    *, step: str, index: int, workflow: str | None, scope: Scope, as_json: bool
) -> int:
    """Make STEP the current step, forwards or back; INDEX is its position, from 0."""
    return _change(
        lambda client, stack: client.advance_to_step(stack, step, index, workflow=workflow),
        scope, as_json=as_json,
    )  # fmt: skip


@stack_command.command("complete")
@which_workflow
@as_json
def complete_command(*, workflow: str | None, scope: Scope, as_json: bool) -> int:
    """End a workflow session as completed; those above it stay."""
    return _change(
        lambda client, stack: client.complete_workflow(stack, workflow=workflow),
        scope, as_json=as_json,
    )  # fmt: skip


@stack_command.command("abort")
@click.argument("reason")
@which_workflow
@as_json
def abort_command(*, reason: str, workflow: str | None, scope: Scope, as_json: bool) -> int:
    """End a workflow session as aborted, with the REASON; those above it stay."""
    return _change(
        lambda client, stack: client.abort_workflow(stack, reason, workflow=workflow),
        scope, as_json=as_json,
    )  # fmt: skip


@stack_command.command("load")
@click.argument("id_", metavar="ID")
@click.option("--force", is_flag=True, help="Replace the one on top; also load an ended one.")
@which_stack
@as_json
def load_command(*, id_: str, force: bool, scope: Scope, as_json: bool) -> int:
    """Put a workflow session back on top of the stack, from its JSON file if need be."""
    from leadhand.stack.mirror import FILES, Mirror

    record = None if scope.folder is None else Mirror(Path(scope.folder, FILES)).read(id_)
    return _change(
        lambda client, stack: client.load_workflow(stack, id_, record, force=force),
        scope, as_json=as_json,
    )  # fmt: skip


@stack_command.command("rm")
@click.argument("id_", metavar="ID")
@which_stack
@as_json
def rm_command(*, id_: str, scope: Scope, as_json: bool) -> int:
    """Delete a workflow session and its JSON file, active or not."""
    return _change(
        lambda client, stack: client.delete_workflow(stack, id_),
        scope, as_json=as_json, removed=id_,
    )  # fmt: skip


def _change(
    call: Callable[[Client, str], StackChange],
    scope: Scope,
    *,
    as_json: bool,
    removed: str = "",
) -> int:
    """Change a stack, then print the change and update the folder's files."""
    from leadhand.cli.render.tables import echo_json
    from leadhand.stack.mirror import update_files

    with open_stack(scope) as client:
        change = call(client, scope.stack)
    update_files(scope, change, removed)
    if as_json:
        echo_json(change)
        return 0
    if change.workflow is not None:
        click.echo(reading.line_of(change.workflow))
    active = change.stack.active
    if active is None:
        click.echo("the stack is empty")
    elif change.workflow is None or active.session_id != change.workflow.session_id:
        click.echo(f"active: {reading.line_of(active)}")
    return 0


@stack_command.command("move")
@click.argument("old", metavar="FOLDER", type=click.Path(path_type=Path))
@which_stack
def move_command(*, old: Path, scope: Scope) -> int:
    """Move the stack of FOLDER to this folder, after its project was renamed or moved.

    Stacks of agent sessions beside it come along. FOLDER need not exist any more.
    """
    from leadhand.cli.connect import open_client
    from leadhand.stack.mirror import FILES
    from leadhand.stack.moving import Origin, move_stacks, write_origin

    if scope.folder is None or scope.place is None:
        raise click.UsageError("--stack names a stack that belongs to no folder")
    with open_client(needs_worker=True) as client:
        moved = move_stacks(client, Origin(str(old.resolve()), scope.place), scope)
    if not moved:
        raise click.ClickException(f"{old} has no stack; `leadhand stack all` lists the stacks")
    files = Path(scope.folder, FILES)
    if files.is_dir():
        write_origin(files, scope)
    click.echo(f"the stack of {old.resolve()} is that of {scope.folder} now")
    return 0


for command in (
    reading.show_command, reading.get_command, reading.outputs_command, reading.ls_command,
    reading.all_command,
):  # fmt: skip
    stack_command.add_command(command)


def _outputs(pairs: tuple[str, ...], document: str | None) -> dict[str, Any]:
    """The outputs of the options. Raises ClickException for JSON that is no object."""
    found: Any = {}
    if document is not None:
        try:
            found = json.loads(document)
        except ValueError as error:
            raise click.ClickException(f"--outputs is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise click.ClickException("--outputs is no JSON object; name each output")
    for pair in pairs:
        key, is_pair, text = pair.partition("=")
        if not key or not is_pair:
            raise click.ClickException(f"--output {pair!r} has no name; give NAME=TEXT")
        found[key] = text
    return dict(found)
