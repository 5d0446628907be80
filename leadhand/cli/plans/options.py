"""The options of `leadhand plan new`, and the document that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leadhand.cli.budget_options import pop_budget
from leadhand.cli.loop_options import (
    baseline_option,
    checker_of,
    on_protected_option,
    protect_option,
)
from leadhand.cli.session_settings import SessionSettings

if TYPE_CHECKING:
    from leadhand.models.plans import PlanDocument

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
    from leadhand.cli.plans.tasks_file import TasksInvalid, planned_tasks
    from leadhand.models.toml_file import TomlUnreadable
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
