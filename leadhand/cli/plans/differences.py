"""Compares the tasks of a plan: with an edited file, or with a later version (pure)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from leadhand.cli.plans.tasks_file import EditedTask, TasksInvalid, as_planned
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlanOperation,
    RetryTask,
)
from leadhand.models.text import plain
from leadhand.models.views.plan import PlanView, TaskView

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
