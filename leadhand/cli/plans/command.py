"""`leadhand plan`: starts plans, shows and changes them, and decides about proposals."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leadhand.cli.budget_options import budget_options
from leadhand.cli.connect import shows
from leadhand.cli.env_options import env_options
from leadhand.cli.group import Group
from leadhand.cli.plans.home import plan_apply_command
from leadhand.cli.plans.options import plan_options
from leadhand.cli.render.tables import echo_json

if TYPE_CHECKING:
    from leadhand.models.plans import PlanOperation
    from leadhand.models.views.plan import PlanView
    from leadhand.models.views.session import SessionView

_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
_EXAMPLE = '\b\nleadhand plan new "add a login page" --checker "pytest -q" --at-once 2'


@click.group("plan", cls=Group, context_settings={"max_content_width": 100})
def plan_command() -> None:
    """Divide requests into tasks for child sessions (plans)."""


plan_command.add_command(plan_apply_command)


@plan_command.command("new", epilog=_EXAMPLE)
@click.argument("request", required=False)
@plan_options
@budget_options
@env_options
@click.option("--detach", is_flag=True, help="Print the session's id and exit.")
@_JSON
def plan_new_command(*, request: str | None, detach: bool, as_json: bool, **given: Any) -> int:
    """Plan REQUEST: a team lead decomposes it into tasks, and a person approves them.

    Then child sessions carry out the tasks, each once those that it depends on are accepted. At a
    terminal the draft is shown: type approve, change TEXT, edit or drop N. `-` as the REQUEST reads
    it from standard input.
    """
    from leadhand.cli.connect import open_client, tell_warnings
    from leadhand.cli.cost_warning import warn_about_cost_limit
    from leadhand.cli.plans.options import plan_document
    from leadhand.cli.task_text import read_task

    file = given.pop("request_file")
    request = read_task(request, file, name="REQUEST", option="--request-file")
    document = plan_document(request, **given)
    with open_client(needs_worker=True) as client:
        session = client.submit(document)
        warn_about_cost_limit(client, document)
        tell_warnings(session)
        if detach:
            _show_detached(session, as_json=as_json)
            return 0
        from leadhand.cli.render.plan_text import plan_summary
        from leadhand.cli.run_session import wait_and_show

        return wait_and_show(
            client,
            session,
            as_json=as_json,
            summary=lambda result: plan_summary(result, client.plan(session.id)),
        )


@plan_command.command("show")
@click.argument("session")
@_JSON
def plan_show_command(*, session: str, as_json: bool) -> int:
    """Show the plan of SESSION with the status of each task."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.plan_text import draft_lines, plan_lines

    with open_client(needs_worker=True) as client:
        plan = client.plan(session)
    if as_json:
        echo_json(plan)
        return 0
    lines = [*plan_lines(plan)]
    if plan.state == "refining":
        lines = [*draft_lines(plan), *lines[-3:]]  # the commands that decide
    for line in lines:
        click.echo(line)
    return 0


@plan_command.command("edit")
@click.argument("session")
@click.option(
    "--file",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Take the tasks from this edited file, not from an editor.",
)
def plan_edit_command(*, session: str, file: Path | None) -> int:
    """Edit the tasks of the plan of SESSION in $EDITOR, and send the changes.

    A task that has started can only change its notes and priority.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.plans.editor import done_line, edit_by_file, edit_in_editor
    from leadhand.settings import environment

    has_editor = {"VISUAL", "EDITOR"} & environment().keys() or sys.stdin.isatty()
    if file is None and not has_editor:
        raise click.UsageError("there is no terminal for an editor; give --file, or set EDITOR")
    with open_client(needs_worker=True) as client, _conflicts_named():
        if file is not None:
            edited = edit_by_file(client, session, file)
        else:
            edited = edit_in_editor(client, session, edit_again=_edit_again)
    for line in [*edited.meanwhile, done_line(edited)]:
        click.echo(line)
    return 0


@plan_command.command("change")
@click.argument("session")
@click.argument("text")
def plan_change_command(*, session: str, text: str) -> int:
    """Ask the team lead of SESSION to change its draft according to TEXT.

    `-` as the TEXT reads standard input.
    """
    from leadhand.cli.connect import open_client
    from leadhand.cli.task_text import read_task

    text = read_task(text, None, name="TEXT")
    with open_client(needs_worker=True) as client:
        client.change_plan(session, text)
    click.echo(f"the team lead of session {session} changes its draft")
    return 0


@plan_command.command("approve")
@click.argument("session")
@shows("approve_plan", needs_worker=True)
def plan_approve_command(plan: PlanView, **_: object) -> Iterator[str]:
    """Approve the draft of SESSION, so that its tasks start."""
    from leadhand.cli.render.plan_text import changed_line

    yield changed_line(plan, "approved")


@plan_command.command("retry")
@click.argument("session")
@click.argument("task")
def plan_retry_command(*, session: str, task: str) -> int:
    """Start a failed TASK of the plan of SESSION again."""
    from leadhand.models.plans import RetryTask

    return _change_task(session, task, lambda one: [RetryTask(id=one)], "will be tried again")


@plan_command.command("drop")
@click.argument("session")
@click.argument("task")
def plan_drop_command(*, session: str, task: str) -> int:
    """Remove TASK, which has not started, from the plan of SESSION."""
    from leadhand.models.plans import DropTask

    return _change_task(session, task, lambda one: [DropTask(id=one)], "is dropped")


@plan_command.command("proposals")
@click.argument("session")
@click.option("--all", "every", is_flag=True, help="Include accepted and refused proposals.")
@_JSON
def plan_proposals_command(*, session: str, every: bool, as_json: bool) -> int:
    """List the open proposals of child sessions: tasks for the plan of SESSION."""
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.plan_text import proposal_lines

    with open_client(needs_worker=True) as client:
        plan = client.plan(session)
    if as_json:
        found = [one for one in plan.proposals if every or one.status == "open"]
        echo_json({"items": [one.model_dump(mode="json") for one in found]})
        return 0
    for line in proposal_lines(plan, every=every):
        click.echo(line)
    return 0


@plan_command.command("accept")
@click.argument("session")
@click.argument("proposal")
def plan_accept_command(*, session: str, proposal: str) -> int:
    """Add the task of a PROPOSAL to the plan of SESSION."""
    return _decide(session, proposal, accept=True)


@plan_command.command("refuse")
@click.argument("session")
@click.argument("proposal")
def plan_refuse_command(*, session: str, proposal: str) -> int:
    """Refuse a PROPOSAL of a child session of SESSION."""
    return _decide(session, proposal, accept=False)


def _decide(session: str, proposal: str, *, accept: bool) -> int:
    from leadhand.cli.connect import open_client
    from leadhand.cli.render.plan_text import changed_line

    with open_client(needs_worker=True) as client:
        plan = client.decide_proposal(session, proposal, accept=accept)
    what = "accepted" if accept else "refused"
    click.echo(changed_line(plan, f"proposal {proposal} is {what}"))
    return 0


def _change_task(
    session: str, task: str, operations: Callable[[str], Sequence[PlanOperation]], what: str
) -> int:
    from leadhand.cli.connect import open_client
    from leadhand.cli.plans.editor import send
    from leadhand.cli.render.plan_text import changed_line, numbered_task

    with open_client(needs_worker=True) as client, _conflicts_named():
        plan = client.plan(session)
        found = numbered_task(plan, task)
        if found is None:
            client.plan_task(session, task)  # raises TaskUnknown with what was probably meant
        now, meanwhile = send(client, plan, operations(found or task))
    for line in [*meanwhile, changed_line(now, f"task {found} {what}")]:
        click.echo(line)
    return 0


@contextmanager
def _conflicts_named() -> Iterator[None]:
    """Name what others changed, where an edit is refused because of it."""
    from leadhand.errors import PlanChanged

    try:
        yield
    except PlanChanged as error:
        version = "" if error.plan is None else f", to version {error.plan.version}"
        raise click.ClickException(
            f"the plan has changed since it was read{version}; look at it and try again"
        ) from None


def _edit_again(why: str) -> bool:
    """Say what is wrong with an edit, and ask whether to open it again, if at a terminal."""
    if not sys.stdin.isatty():
        return False
    click.echo(f"leadhand: {why}", err=True)
    try:
        return click.confirm("edit it again?", default=True, err=True)
    except click.Abort:
        return False


def _show_detached(session: SessionView, *, as_json: bool) -> None:
    if as_json:
        echo_json(session)
    else:
        click.echo(session.id)
