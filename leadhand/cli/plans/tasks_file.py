"""Reads and writes the tasks of a plan as a TOML or JSON file that people edit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from leadhand.models.plans import PlannedTask, check_tasks
from leadhand.models.suggestions import nearest_field
from leadhand.models.toml_file import read_toml
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
