"""`leadhand plan` and `report`: starts, shows, changes and decides plans; reports about a task."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadhand.cli.connect import shows
from leadhand.cli.group import Group
from leadhand.cli.options import (
    SessionSettings,
    baseline_option,
    budget_options,
    checker_of,
    env_options,
    on_protected_option,
    pop_budget,
    protect_option,
)
from leadhand.cli.render.tables import echo_json
from leadhand.cli.worktree import apply_plan

if TYPE_CHECKING:
    from leadhand.models.plans import PlanDocument, PlanOperation
    from leadhand.models.views.plan import PlanView
    from leadhand.models.views.session import SessionView

F = TypeVar("F", bound=Callable[..., Any])
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.option(
        "--request-file", metavar="FILE", type=_FILE, help="Read the request from this file."
    ),
    click.option(
        "--tasks", "tasks_file", metavar="FILE", type=_FILE,
        help="Take the tasks from this JSON or TOML file; no team lead is asked.",
    ),
    click.option(
        "--checker", "checkers", metavar="SPEC", multiple=True,
        help="A checker of the tasks, as for spawn; 'NAME: SPEC' names it; may be repeated.",
    ),
    click.option("--unchecked", is_flag=True, help="Accept tasks without any checker."),
    click.option("--doer", metavar="CMD", help="A shell command that carries out each task."),
    click.option("--agent", metavar="NAME", help="An agent that carries out each task."),
    click.option("--lead", metavar="NAME", help="The agent that is the team lead."),
    click.option("--lead-model", metavar="NAME", help="The team lead's model."),
    click.option(
        "--lead-timeout", type=float, metavar="S", help="Seconds for each turn of the lead (3600)."
    ),
    click.option("--at-once", type=int, metavar="N", help="The most tasks at once (3)."),
    click.option(
        "--refine/--no-refine", default=None,
        help="Whether a person approves the tasks before they start (yes).",
    ),
    click.option(
        "--refine-timeout", "refine_timeout_s", type=float, metavar="S",
        help="Seconds that the draft waits for a person (two days).",
    ),
    click.option(
        "--on-deadline", type=click.Choice(["stop", "approve"]),
        help="What happens to a draft that is not approved in time (stop).",
    ),
    click.option(
        "--retries", type=int, metavar="N", help="How often a failed task is tried again (1)."
    ),
    click.option(
        "--on-failure", type=click.Choice(["continue", "stop", "replan"]),
        help="After a task has failed for good: whether others start, or whether the lead is asked"
        " for another way (continue).",
    ),
    click.option(
        "--max-replans", type=int, metavar="N",
        help="How often the lead is asked for another way (3).",
    ),
    click.option(
        "--replan-timeout", "replan_timeout_s", type=float, metavar="S",
        help="Seconds that the lead has for that (3600).",
    ),
    click.option(
        "--proposals", type=click.Choice(["accept", "ask", "refuse"]),
        help="What happens with tasks that child sessions propose (ask).",
    ),
    click.option(
        "--workspace", type=click.Choice(["worktree", "copy", "shared"]),
        help="Where each task works (worktree in a git repository, otherwise copy).",
    ),
    click.option(
        "--merge", type=click.Choice(["plan", "none"]),
        help="Where accepted work in worktrees is merged (plan: the plan's own branch).",
    ),
    click.option(
        "--target", metavar="BRANCH", help="Merge into this branch, which is not checked out."
    ),
    click.option(
        "--proposal-timeout", "proposal_timeout_s", type=float, metavar="S",
        help="Seconds after which an open proposal is refused (two days).",
    ),
    baseline_option,
    protect_option,
    on_protected_option,
    click.option("--cwd", metavar="DIR", help="The folder to work in (the current one)."),
    click.option("--label", metavar="TEXT", help="The session's label."),
    click.option(
        "--priority", type=click.Choice(["high", "normal", "low"]),
        help="The priority of the session's steps (normal).",
    ),
    click.option(
        "--place", metavar="NAME", help="The place to work at, if workers are at several."
    ),
)  # fmt: skip
#: Options whose field of the document has another name.
_FIELDS = {
    "lead": "agent",
    "lead_model": "model",
    "lead_timeout": "timeout_s",
    "retries": "task_retries",
    "on_failure": "on_task_failure",
}
_JSON = click.option("--json", "as_json", is_flag=True, help="Print exactly one JSON object.")
_EXAMPLE = '\b\nleadhand plan new "add a login page" --checker "pytest -q" --at-once 2'


def plan_options(command: F) -> F:
    """Adds the command-line options of `leadhand plan new` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def plan_document(
    request: str,
    *,
    checkers: tuple[str, ...],
    tasks_file: Path | None,
    doer: str | None,
    agent: str | None,
    **given: Any,
) -> PlanDocument:
    """Builds a plan document from options. Raises ClickException if they do not fit together."""
    from leadhand.callables import as_doer
    from leadhand.cli.plan_editing import TasksInvalid, planned_tasks
    from leadhand.models.folder_settings import TomlUnreadable
    from leadhand.plan import plan_document as document_of

    budget, cwd = pop_budget(given), given.pop("cwd")
    fields = {_FIELDS.get(name, name): one for name, one in given.items() if one is not None}
    try:
        if tasks_file is not None:
            fields["tasks"] = planned_tasks(tasks_file)
        if budget:
            fields["budget"] = budget
        settings = SessionSettings(cwd)
        if quarantine := settings.read_quarantine():
            fields["quarantine"] = quarantine
        fields |= settings.read_leave_out()
        if protected := [*settings.read_protected(), *fields.get("protected", ())]:
            fields["protected"] = protected
        named = [checker_of(checker, cwd) for checker in checkers]
        return document_of(request, named, doer=as_doer(doer, agent), cwd=cwd, **fields)
    except (TasksInvalid, TomlUnreadable, ValueError) as error:
        raise click.ClickException(str(error)) from None


@click.group("plan", cls=Group, context_settings={"max_content_width": 100})
def plan_command() -> None:
    """Divide requests into tasks for child sessions (plans)."""


plan_command.command("apply")(apply_plan)


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
    from leadhand.cli.options import read_task
    from leadhand.cli.running import warn_about_cost_limit

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
        from leadhand.cli.running import wait_and_show

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
    from leadhand.cli.plan_editing import done_line, edit_by_file, edit_in_editor
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
    from leadhand.cli.options import read_task

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
    from leadhand.cli.plan_editing import send
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
    from leadhand.cli.plan_editing import TasksInvalid, planned_tasks
    from leadhand.models.folder_settings import TomlUnreadable

    if file is None:
        return []
    try:
        return [{"task": task, "why": why or ""} for task in planned_tasks(file, alone=False)]
    except (TasksInvalid, TomlUnreadable) as error:
        raise click.ClickException(str(error)) from None
