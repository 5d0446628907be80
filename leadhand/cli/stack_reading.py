"""The commands of `leadhand stack` that only read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from leadhand.cli.stack_options import as_json, open_stack, which_stack, which_workflow
from leadhand.models.text import plain

if TYPE_CHECKING:
    from leadhand.models.stacks import StackedWorkflow, StepProgress, WorkflowSession
    from leadhand.stack.scope import Scope


@click.command("show")
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


@click.command("get")
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


@click.command("outputs")
@which_workflow
def outputs_command(*, workflow: str | None, scope: Scope) -> int:
    """Print the outputs of a stack's workflow session as one JSON object; later steps override.

    By default the workflow is the innermost active one of the folder's stack.
    """
    with open_stack(scope) as client:
        found = client.workflow_outputs(scope.stack, workflow)
    click.echo(json.dumps(found.outputs, ensure_ascii=False, indent=2))
    return 0


@click.command("ls")
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


@click.command("all")
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
