"""Edits a plan in an editor or by a file, and sends the difference as operations."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from leadhand.cli.plans.differences import edits_between, operations_between, touched
from leadhand.cli.plans.tasks_file import TasksFile, TasksInvalid, format_tasks, read_tasks
from leadhand.cli.render.plan_text import changed_line
from leadhand.cli.render.tables import plural
from leadhand.client.client import Client
from leadhand.errors import LeadhandError, PlanChanged, PlanRefused, RequestInvalid
from leadhand.models.plans import PlanOperation
from leadhand.models.toml_file import TomlUnreadable
from leadhand.models.views.plan import PlanView

#: How often an edit is sent again after changes of other tasks, as reports of children are.
TRIES = 20


class Edited(NamedTuple):
    """A plan after an edit."""

    plan: PlanView
    #: How many operations were carried out.
    operations: int
    #: What others changed meanwhile, in sentences.
    meanwhile: Sequence[str] = ()


def edit_in_editor(client: Client, session: str, *, edit_again: Callable[[str], bool]) -> Edited:
    """Opens a plan's tasks in the user's editor and sends the changes to the API.

    `edit_again` is called with what is wrong with an edit, and returns whether to open it again.
    Raises ClickException if the edit cannot be sent; the edited file is kept then, and named.
    """
    plan = client.plan(session)
    text = format_tasks(plan)
    folder = Path(tempfile.mkdtemp(prefix="leadhand-plan-"))
    file = folder / f"plan-{session}.toml"
    file.write_text(text, encoding="utf-8")
    try:
        edited = _edit(client, plan, file, edit_again)
    except (click.ClickException, LeadhandError, OSError) as error:
        if file.exists() and file.read_text(encoding="utf-8", errors="replace") != text:
            raise click.ClickException(_kept(error, session, file)) from None
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)
    return edited


def edit_by_file(client: Client, session: str, file: Path) -> Edited:
    """Sends the changes in an edited file of tasks to the API; refuses a file of another version.

    Raises ClickException for a file that cannot be used, PlanRefused and PlanChanged.
    """
    plan = client.plan(session)
    try:
        found = read_tasks(file)
        _check_origin(found, plan, file)
        return _send_difference(client, plan, found)
    except (TasksInvalid, TomlUnreadable) as error:
        raise click.ClickException(str(error)) from None


def send(
    client: Client, plan: PlanView, operations: Sequence[PlanOperation]
) -> tuple[PlanView, Sequence[str]]:
    """Sends edits of a plan; returns the new plan, and what other people changed meanwhile.

    Changes of other tasks are no conflict: the operations are sent again with the new version.
    Raises PlanChanged for a change of a task that the operations touch, and PlanRefused.
    """
    seen, others = plan, dict[str, str]()
    for tries_left in reversed(range(TRIES)):
        try:
            return client.edit_plan(plan.session, operations, seen=seen), [*others.values()]
        except PlanChanged as error:
            if error.plan is None or not tries_left:
                raise
            seen, others = error.plan, edits_between(plan, error.plan)
            if others.keys() & touched(operations):
                raise
    raise AssertionError("unreachable")


def conflict_lines(plan: PlanView, error: PlanChanged) -> list[str]:
    """Describes, in sentences, what others changed in a plan since it was read; [] if unknown."""
    return [] if error.plan is None else [*edits_between(plan, error.plan).values()]


def done_line(edited: Edited) -> str:
    """Formats a line with the number of changes that an edit made, and the plan's new version."""
    if not edited.operations:
        return f"nothing changed; the plan is at version {edited.plan.version}"
    return changed_line(edited.plan, f"{plural(edited.operations, 'change')} made")


def message_of(error: Exception) -> str:
    """Returns the message of an error of a command or of the API."""
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


def _edit(client: Client, plan: PlanView, file: Path, edit_again: Callable[[str], bool]) -> Edited:
    while True:
        click.edit(filename=str(file))
        try:
            return _send_difference(client, plan, read_tasks(file))
        except PlanChanged as error:
            now = error.plan.version if error.plan is not None else "unknown"
            what = "; ".join(conflict_lines(plan, error)) or "it changed again and again"
            raise click.ClickException(
                f"the plan has changed while you edited it, to version {now}: {what}"
            ) from None
        except (TasksInvalid, TomlUnreadable, PlanRefused, RequestInvalid) as error:
            if not edit_again(str(error)):
                raise click.ClickException(str(error)) from None


def _send_difference(client: Client, plan: PlanView, found: TasksFile) -> Edited:
    operations = operations_between(plan.tasks, found.tasks)
    if not operations:
        return Edited(plan, 0)
    now, meanwhile = send(client, plan, operations)
    return Edited(now, len(operations), meanwhile)


def _kept(error: Exception, session: str, file: Path) -> str:
    return (
        f"{message_of(error)}\nyour edit is kept in {file}: correct it and its version,"
        f" then send it with: leadhand plan edit {session} --file {file}"
    )


def _check_origin(found: TasksFile, plan: PlanView, file: Path) -> None:
    if found.session not in (None, plan.session):
        raise TasksInvalid(
            f"{file} is of the plan of session {found.session}; edit that one, or correct the file"
        )
    if found.version not in (None, plan.version):
        raise TasksInvalid(
            f"{file} is of version {found.version}, and the plan is at version {plan.version};"
            f" compare it with `leadhand plan show {plan.session}`, then correct its version"
        )
