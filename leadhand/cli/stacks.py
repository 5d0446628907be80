"""`leadhand stack`: starts, advances and ends nested workflow sessions."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.group import Group
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.client.client import Client
    from leadhand.models.stacks import StackChange, StackedWorkflow, StepProgress, WorkflowSession
    from leadhand.stack import Scope

Command = Callable[..., Any]


@click.group("stack", cls=Group)
def stack_command() -> None:
    """Keep the nested workflows of an agent on a stack.

    Each folder has a stack, which all processes on a host share. The workflow session on top is the
    active one. The commands change it unless --workflow names another one.
    """


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
    from leadhand.stack import find_scope

    try:
        return find_scope(folder, name, agent_session=agent_session)
    except ValueError as error:
        raise click.ClickException(f"the stack: {error}") from None


@contextmanager
def open_stack(scope: Scope) -> Iterator[Client]:
    """Opens a client, and moves the stack of a folder here that was renamed to this one."""
    from leadhand.cli.connect import open_client
    from leadhand.stack import FILES, adopt_stacks

    with open_client(needs_worker=True) as client:
        if scope.folder is not None:
            why = adopt_stacks(client, Path(scope.folder, FILES), scope)
            if why is not None:
                click.echo(f"leadhand: {why}", err=True)
        yield client


@stack_command.command("show")
@which_stack
@as_json
def show_command(*, scope: Scope, as_json: bool) -> int:
    """Show the workflow sessions on the stack, the active one first."""
    from leadhand.cli.render.tables import echo_json, table
    from leadhand.cli.render.times import age

    with open_stack(scope) as client:
        stack = client.stack(scope.stack)
    if as_json:
        echo_json(stack)
        return 0
    rows = [
        [one.session_id, one.workflow, one.current_step_id, one.instance_id or "-",
         age(one.started_at)]
        for one in reversed(stack.workflows)
    ]  # fmt: skip
    none = "the stack is empty; start a workflow with `leadhand stack start`"
    head = ["ID", "WORKFLOW", "STEP", "INSTANCE", "STARTED"]
    click.echo("\n".join(table(head, rows)) if rows else none)
    return 0


@stack_command.command("get")
@click.argument("id_", metavar="[ID]", required=False)
@which_stack
@as_json
def get_command(*, id_: str | None, scope: Scope, as_json: bool) -> int:
    """Show a workflow session with its steps, by default the active one."""
    from leadhand.cli.render.tables import echo_json, table

    with open_stack(scope) as client:
        found = client.stack_workflow(scope.stack, id_)
    if as_json:
        echo_json(found)
        return 0
    click.echo(line_of(found))
    for label, text in (("goal", found.goal), ("reason", found.abort_reason)):
        if text:
            click.echo(f"{label}: {plain(text, most=400)}")
    rows = [
        [step.step_id, _state(step), step.quality_attempts, ", ".join(step.outputs)]
        for step in found.step_progress.values()
    ]
    if rows:
        click.echo("\n".join(table(["STEP", "STATE", "ATTEMPTS", "OUTPUTS"], rows)))
    return 0


@stack_command.command("outputs")
@which_workflow
def outputs_command(*, workflow: str | None, scope: Scope) -> int:
    """Print the outputs of a stack's workflow session as one JSON object; later steps override.

    By default the workflow is the innermost active one of the folder's stack.
    """
    with open_stack(scope) as client:
        found = client.workflow_outputs(scope.stack, workflow)
    click.echo(json.dumps(found.outputs, ensure_ascii=False, indent=2))
    return 0


@stack_command.command("ls")
@click.option("--job", metavar="TEXT", help="Only those of this job.")
@click.option("--name", "flow", metavar="TEXT", help="Only those of this workflow.")
@click.option("--status", type=click.Choice(["active", "completed", "aborted"]))
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@which_stack
@as_json
def ls_command(
    *, job: str | None, flow: str | None, status: str | None, limit: int, scope: Scope,
    as_json: bool,
) -> int:  # fmt: skip
    """List the workflow sessions of the stack, the newest first, ended ones too."""
    from leadhand.cli.render.tables import echo_json, table
    from leadhand.cli.render.times import age

    with open_stack(scope) as client:
        page = client.stack_workflows(
            scope.stack, job_name=job, workflow_name=flow, limit=limit,
            status=status,  # type: ignore[arg-type]  # click has checked it
        )  # fmt: skip
    if as_json:
        echo_json(page)
        return 0
    rows = [
        [one.session_id, one.workflow, one.status, one.current_step_id, age(one.started_at)]
        for one in page.items
    ]
    head = ["ID", "WORKFLOW", "STATUS", "STEP", "STARTED"]
    click.echo("\n".join(table(head, rows)) if rows else "no workflow sessions")
    if page.next is not None:
        click.echo(f"... more than {limit}: see --limit")
    return 0


@stack_command.command("all")
@click.option("--limit", type=click.IntRange(1, 500), default=50, show_default=True)
@as_json
def all_command(*, limit: int, as_json: bool) -> int:
    """List the stacks of all folders, the one that was changed last first."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.tables import echo_json, table
    from leadhand.cli.render.times import age

    with open_client(needs_worker=False) as client:
        page = client.stacks(limit=limit)
    if as_json:
        echo_json(page)
        return 0
    rows = [
        [one.name, one.depth, one.workflow or "-", one.step or "-",
         age(one.updated_at) if one.updated_at else "-", one.folder or "-"]
        for one in page.items
    ]  # fmt: skip
    head = ["STACK", "DEPTH", "ACTIVE", "STEP", "CHANGED", "FOLDER"]
    click.echo("\n".join(table(head, rows, widest=4096)) if rows else "no stacks")
    if page.next is not None:
        click.echo(f"... more than {limit}: see --limit")
    return 0


def line_of(one: WorkflowSession | StackedWorkflow) -> str:
    """Formats a workflow session as one line: its id, workflow, status and current step."""
    status = getattr(one, "status", "active")
    return f"{one.session_id}  {plain(one.workflow)}  {status}  at {plain(one.current_step_id)}"


def _state(step: StepProgress) -> str:
    if step.completed_at is None:
        return "started" if step.started_at else "-"
    is_again = step.started_at is not None and step.started_at > step.completed_at
    return "started again" if is_again else "completed"


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
    from leadhand.stack import update_files

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
    from leadhand.stack import FILES, Mirror

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
    from leadhand.stack import update_files

    with open_stack(scope) as client:
        change = call(client, scope.stack)
    update_files(scope, change, removed)
    if as_json:
        echo_json(change)
        return 0
    if change.workflow is not None:
        click.echo(line_of(change.workflow))
    active = change.stack.active
    if active is None:
        click.echo("the stack is empty")
    elif change.workflow is None or active.session_id != change.workflow.session_id:
        click.echo(f"active: {line_of(active)}")
    return 0


@stack_command.command("move")
@click.argument("old", metavar="FOLDER", type=click.Path(path_type=Path))
@which_stack
def move_command(*, old: Path, scope: Scope) -> int:
    """Move the stack of FOLDER to this folder, after its project was renamed or moved.

    Stacks of agent sessions beside it come along. FOLDER need not exist any more.
    """
    from leadhand.cli.connect import open_client
    from leadhand.stack import FILES, Origin, move_stacks, write_origin

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
