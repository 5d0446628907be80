"""Edits a plan in an editor or by a file, and sends the difference as operations."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from pydantic import ValidationError

from leadhand.cli.render.plan_text import changed_line
from leadhand.cli.render.tables import plural
from leadhand.client.client import Client
from leadhand.errors import LeadhandError, PlanChanged, PlanRefused, RequestInvalid
from leadhand.models.folder_settings import TomlUnreadable, read_toml
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlannedTask,
    PlanOperation,
    RetryTask,
    check_tasks,
)
from leadhand.models.suggestions import nearest_field
from leadhand.models.text import plain
from leadhand.models.validation_messages import first_error
from leadhand.models.views.plan import PlanView, TaskView

#: Fields of a task that are written even if they have their defaults.
_ALWAYS = ("id", "title", "dependencies", "description")
#: Fields that are written only if they differ from their defaults.
_IF_SET = (
    "agent", "model", "checkers", "rule", "file_scope", "priority", "max_iterations", "notes",
)  # fmt: skip
#: Characters that a string of one line escapes, and one of several lines.
_ESCAPED = re.compile(r'[\x00-\x1f\x7f"\\]')
_ESCAPED_IN_LINES = re.compile(r'[\x00-\x08\x0b-\x1f\x7f\\]|"(?="|$)')
_SHORT = {'"': '\\"', "\\": "\\\\", "\t": "\\t"}
#: How often an edit is sent again after changes of other tasks, as reports of children are.
TRIES = 20


class EditedTask(PlannedTask):
    """A task as a person writes it in a file."""

    notes: str = ""


class TasksFile(NamedTuple):
    """The content of a file: tasks, and the plan that they were written from."""

    tasks: tuple[EditedTask, ...]
    #: The version of the plan; None if the file does not name one.
    version: int | None = None
    #: The session of the plan; None if the file does not name one.
    session: str | None = None


class TasksInvalid(ValueError):
    """A file of tasks cannot be read; the message names the file, the task and the field."""


def format_tasks(plan: PlanView) -> str:
    """Formats the tasks of a plan as TOML with comments, for a person to edit."""
    names = ", ".join([*_ALWAYS, *_IF_SET])
    lines = [
        f"# The plan of session {plan.session}. Save it and leave the editor to send the changes.",
        "# Each task begins with [[tasks]]: change its fields, remove it, move it, or add another.",
        f"# Fields: {names}.",
        "# A task starts once its dependencies are accepted; priority is 0 (first) to 9 (last).",
        f"# Checkers to choose from: {', '.join(plan.checkers) or 'none'}; by default all.",
        f"session = {_string(plan.session)}",
        f"version = {plan.version}",
    ]
    for task in plan.tasks:
        lines += ["", *_task_lines(task)]
    return "\n".join(lines) + "\n"


def read_tasks(file: Path, *, alone: bool = True) -> TasksFile:
    """Reads a file of tasks: TOML with `[[tasks]]`, or JSON with a list or `{"tasks": [...]}`.

    Raises TasksInvalid, TomlUnreadable and OSError.
    """
    if file.suffix.lower() == ".json":
        return parse_tasks(_from_json(file), str(file), alone=alone)
    if not file.exists():
        raise TasksInvalid(f"{file} does not exist; name a file of tasks")
    return parse_tasks(read_toml(file)[1], str(file), alone=alone)


def planned_tasks(file: Path, *, alone: bool = True) -> list[PlannedTask]:
    """Reads new tasks for a plan from a file; with `alone=False` they may depend on other tasks.

    Raises TasksInvalid, TomlUnreadable and OSError.
    """
    found = read_tasks(file, alone=alone).tasks
    for task in found:
        if task.notes:
            raise TasksInvalid(f"{file}: task {task.id!r} has notes; write them as description")
    return [as_planned(task) for task in found]


def as_planned(task: EditedTask) -> PlannedTask:
    """Converts an edited task to a task of a new plan, without its notes."""
    return PlannedTask.model_validate(task.model_dump(exclude_unset=True, exclude={"notes"}))


def parse_tasks(content: object, source: str, *, alone: bool = True) -> TasksFile:
    """Parses tasks from a file's decoded TOML or JSON. Raises TasksInvalid if they are not valid.

    With `alone` they must fit together; otherwise they may depend on tasks of a plan.
    """
    if isinstance(content, list):
        content = {"tasks": content}
    if not isinstance(content, Mapping):
        raise TasksInvalid(f"{source} is not a list of tasks; give one, with ids and titles")
    for name in content:
        if name not in ("tasks", "version", "session"):
            raise TasksInvalid(f"{source}: {name!r} is not known; list the tasks under 'tasks'")
    found, version = content.get("tasks"), content.get("version")
    if not isinstance(found, list) or not found:
        raise TasksInvalid(f"{source} has no tasks; give at least one, with an id and a title")
    if version is not None and not (isinstance(version, int) and version >= 0):
        raise TasksInvalid(f"{source}: version is {version!r}; give that of the plan, a number")
    tasks = tuple(_task(one, number, source) for number, one in enumerate(found, start=1))
    try:
        check_tasks(tasks if alone else ())
    except ValueError as error:
        raise TasksInvalid(f"{source}: {error}") from None
    session = content.get("session")
    return TasksFile(tasks, version, session if isinstance(session, str) else None)


def _task(given: object, number: int, source: str) -> EditedTask:
    name = given.get("id") if isinstance(given, Mapping) else None
    which = f"task {name!r}" if isinstance(name, str) else f"task {number}"
    if not isinstance(given, Mapping):
        raise TasksInvalid(f"{source}: {which} is not an object; give it an id and a title")
    try:
        return EditedTask.model_validate(dict(given))
    except ValidationError as error:
        why = _misspelt(error) or first_error(error, EditedTask)
        raise TasksInvalid(f"{source}: {which}: {why}") from None


def _misspelt(error: ValidationError) -> str | None:
    """The first misspelt field; the field that it stands for may be missing because of it."""
    for one in error.errors(include_url=False):
        near = nearest_field(EditedTask, one["loc"]) if one["type"] == "extra_forbidden" else None
        if near is not None:
            return f"{one['loc'][-1]} is no field of a task; did you mean {near}?"
    return None


def _from_json(file: Path) -> object:
    try:
        found: object = json.loads(file.read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise TasksInvalid(f"{file} is not UTF-8 text; save it as UTF-8") from None
    except RecursionError:
        raise TasksInvalid(f"{file} is nested too deep; simplify it") from None
    except ValueError as error:
        raise TasksInvalid(f"{file} is not JSON: {error}; correct it") from None
    return found


def _task_lines(task: TaskView) -> Iterator[str]:
    if task.status != "pending" or task.session is not None:
        by = f" (session {task.session})" if task.session else ""
        yield f"# {task.status}{by}; of a task that has started only notes and priority may change"
    yield "[[tasks]]"
    for name in _ALWAYS:
        yield f"{name} = {_value(getattr(task, name))}"
    for name in _IF_SET:
        value = getattr(task, name)
        if value != _default(name):
            yield f"{name} = {_value(value)}"


def _default(name: str) -> object:
    default = EditedTask.model_fields[name].default
    return [] if default == () else default


def _value(value: str | int | Sequence[str]) -> str:
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return str(value)
    return f"[{', '.join(map(_string, value))}]"


def _string(text: str) -> str:
    """A TOML string; a text of several lines is readable."""
    if "\n" in text:
        return f'"""\n{_ESCAPED_IN_LINES.sub(_escape, text)}\n"""'
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(found: re.Match[str]) -> str:
    return _SHORT.get(found[0]) or f"\\u{ord(found[0]):04x}"


#: Fields of a task that an operation can change.
FIELDS = tuple(name for name in ChangeTask.model_fields if name not in ("op", "id"))
#: Fields that only people change, in the order in which their changes are named.
_DEFINITION = (*FIELDS, "rule")


def operations_between(
    before: Sequence[TaskView], wanted: Sequence[EditedTask]
) -> list[PlanOperation]:
    """Computes the edits that turn one list of tasks into another, in a valid order.

    Raises TasksInvalid for a change that no operation can carry out.
    """
    old = {task.id: task for task in before}
    new = {task.id: task for task in wanted}
    found: list[PlanOperation] = []
    for task in wanted:
        if task.id in old:
            found += _changes(old[task.id], task)
    found += [DropTask(id=one) for one in _drop_order(old, old.keys() - new.keys())]
    kept = [task.id for task in before if task.id in new]
    added = [task for task in wanted if task.id not in old]
    for task in added:
        found.append(AddTask(task=as_planned(task)))
        if task.notes:
            found.append(ChangeTask(id=task.id, notes=task.notes))
    return [*found, *_moves([*kept, *(task.id for task in added)], [task.id for task in wanted])]


def touched(operations: Sequence[PlanOperation]) -> set[str]:
    """Returns the ids of all tasks that these edits name, also as dependencies."""
    found = set[str]()
    for one in operations:
        match one:
            case AddTask():
                found |= {one.task.id, *one.task.dependencies}
            case ChangeTask():
                found |= {one.id, *(one.dependencies or ())}
            case MoveTask():
                found |= {one.id, *filter(None, (one.after,))}
            case DropTask() | RetryTask():
                found.add(one.id)
    return found


def edits_between(before: PlanView, now: PlanView) -> dict[str, str]:
    """Describes what people changed between two versions of a plan: a sentence per task.

    Statuses and other results of child sessions are no edits, but the start of a task is: it
    freezes the task.
    """
    old = {task.id: task for task in before.tasks}
    new = {task.id: task for task in now.tasks}
    found = {one: f"task {one} was dropped" for one in old if one not in new}
    for one, task in new.items():
        if one not in old:
            found[one] = f"task {one} was added: {plain(task.title)}"
        else:
            texts = [*_edited(old[one], task)]
            if texts:
                found[one] = f"task {one}: {'; '.join(texts)}"
    return found


def _edited(old: TaskView, new: TaskView) -> Iterator[str]:
    names = [name for name in _DEFINITION if getattr(old, name) != getattr(new, name)]
    if names:
        yield f"{', '.join(names)} changed"
    if old.run == 0 and new.run > 0:
        yield "it has started"


def _changes(old: TaskView, new: EditedTask) -> Iterator[ChangeTask]:
    for name in ("rule", "budget"):  # of a budget the plan shows nothing
        if new.rule != old.rule if name == "rule" else name in new.model_fields_set:
            raise TasksInvalid(
                f"task {new.id!r}: {name} cannot be changed; drop the task, and add another"
                " with its own id"
            )
    fields = {
        name: getattr(new, name)
        for name in FIELDS
        if _plain(getattr(new, name)) != _plain(getattr(old, name))
    }
    if fields:
        yield ChangeTask.model_validate({"id": new.id, **fields})


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _drop_order(tasks: Mapping[str, TaskView], gone: set[str]) -> list[str]:
    """The tasks to drop, each before those that it depends on."""
    found: list[str] = []
    left = [one for one in tasks if one in gone]
    while left:
        needed = {need for one in left for need in tasks[one].dependencies if need != one}
        free = [one for one in left if one not in needed] or left
        found += free
        left = [one for one in left if one not in free]
    return found


def _moves(before: Sequence[str], wanted: Sequence[str]) -> Iterator[MoveTask]:
    """The fewest moves from one order to another; each places a task behind its neighbour."""
    at = {one: number for number, one in enumerate(before)}
    still = _longest_rise([at[one] for one in wanted])
    for number, one in enumerate(wanted):
        if at[one] not in still:
            yield MoveTask(id=one, after=wanted[number - 1] if number else None)


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """The members of a longest rising subsequence of different numbers.

    >>> sorted(_longest_rise([3, 0, 1, 4, 2]))
    [0, 1, 2]
    """
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for number in numbers:
        place = bisect_left(tails, number)
        before[number] = tails[place - 1] if place else None
        tails[place : place + 1] = [number]
    found = set[int]()
    here = tails[-1] if tails else None
    while here is not None:
        found.add(here)
        here = before[here]
    return found


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
