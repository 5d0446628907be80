"""The difference between a plan and an edited file, as operations that make one of the other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.cli.plan_editing import (
    FIELDS,
    EditedTask,
    TasksInvalid,
    edits_between,
    operations_between,
    touched,
)
from leadhand.contract.plans import shows
from leadhand.models.plans import (
    AddTask,
    ChangeTask,
    DropTask,
    MoveTask,
    PlanEdit,
    PlanOperation,
    RetryTask,
)
from leadhand.models.views.plan import PlanView, TaskView

IDS = [f"t{number}" for number in range(8)]


def task(id_: str, **more: object) -> TaskView:
    return TaskView.model_validate({"id": id_, "title": id_.upper(), "status": "pending", **more})


def edited(id_: str, **more: object) -> EditedTask:
    return EditedTask.model_validate({"id": id_, "title": id_.upper(), **more})


def plan(*tasks: TaskView, version: int = 1) -> PlanView:
    return PlanView(
        session="1a2b3c4d", state="refining", version=version, request="r", tasks=list(tasks)
    )


def carried_out(before: list[TaskView], operations: list[PlanOperation]) -> list[TaskView]:
    """The tasks after the operations, as the store carries them out: in order, or refused."""
    tasks = {one.id: one for one in before}
    order = [one.id for one in before]
    for one in operations:
        match one:
            case AddTask():
                assert one.task.id not in tasks
                fields = one.task.model_dump(exclude={"budget"})
                tasks[one.task.id] = TaskView.model_validate({**fields, "status": "pending"})
                order.append(one.task.id)
            case ChangeTask():
                fields = one.model_dump(exclude_unset=True, exclude={"op", "id"})
                tasks[one.id] = TaskView.model_validate({**tasks[one.id].model_dump(), **fields})
            case DropTask():
                others = [two.dependencies for name, two in tasks.items() if name != one.id]
                assert not any(one.id in needed for needed in others), "another depends on it"
                del tasks[one.id]
                order.remove(one.id)
            case MoveTask():
                order.remove(one.id)
                order.insert(order.index(one.after) + 1 if one.after else 0, one.id)
            case RetryTask():
                raise AssertionError("a file retries nothing")
    return [tasks[one] for one in order]


@st.composite
def task_lists(draw: st.DrawFn) -> list[dict[str, object]]:
    """Tasks without cycles: each depends only on earlier ones of a drawn order."""
    ids = draw(st.lists(st.sampled_from(IDS), unique=True, min_size=1))
    tasks: list[dict[str, object]] = [
        {
            "id": id_,
            "title": draw(st.sampled_from(["one", "two"])),
            "dependencies": draw(st.lists(st.sampled_from(ids[:number]), unique=True))
            if number
            else [],
            "priority": draw(st.integers(0, 9)),
            "agent": draw(st.sampled_from([None, "claude"])),
            "notes": draw(st.sampled_from(["", "n"])),
        }
        for number, id_ in enumerate(ids)
    ]
    return draw(st.permutations(tasks))


def as_views(tasks: list[dict[str, object]]) -> list[TaskView]:
    return [TaskView.model_validate({**one, "status": "pending"}) for one in tasks]


@given(task_lists(), task_lists())
def test_operations_make_the_wanted_tasks_of_those_before(
    before: list[dict[str, object]], wanted: list[dict[str, object]]
) -> None:
    old = as_views(before)
    new = [EditedTask.model_validate(one) for one in wanted]
    operations = operations_between(old, new)
    found = carried_out(old, operations)
    names = ("id", *FIELDS)
    assert [{name: one.model_dump()[name] for name in names} for one in found] == [
        {name: one.model_dump()[name] for name in names} for one in as_views(wanted)
    ]
    assert len([one for one in operations if isinstance(one, MoveTask)]) < max(2, len(wanted))
    if operations:
        assert shows(plan(*found), PlanEdit(operations=tuple(operations)))


def test_unchanged_file_needs_no_operation() -> None:
    before = [task("a", description="x"), task("b", dependencies=["a"], checkers=["lint"])]
    wanted = [
        edited("a", description="x"), edited("b", dependencies=["a"], checkers=["lint"])
    ]  # fmt: skip
    assert operations_between(before, wanted) == []


def test_removed_field_is_set_to_null() -> None:
    (change,) = operations_between([task("a", agent="claude")], [edited("a")])
    assert isinstance(change, ChangeTask)
    assert change.model_dump(exclude_unset=True) == {"id": "a", "agent": None}


def test_moved_task_is_the_only_one_that_is_moved() -> None:
    before = [task(id_) for id_ in IDS]
    wanted = [edited(id_) for id_ in [*IDS[:2], IDS[7], *IDS[2:7]]]
    assert operations_between(before, wanted) == [MoveTask(id="t7", after="t1")]


def test_dependant_is_dropped_before_what_it_needs() -> None:
    before = [task("a"), task("b", dependencies=["a"]), task("c", dependencies=["b"]), task("d")]
    found = operations_between(before, [edited("d")])
    assert [one.id for one in found if isinstance(one, DropTask)] == ["c", "b", "a"]


@pytest.mark.parametrize("field", [{"rule": "any"}, {"budget": {"steps": 3}}])
def test_field_that_no_operation_changes_is_refused(field: dict[str, object]) -> None:
    with pytest.raises(TasksInvalid, match=f"{next(iter(field))} cannot be changed; drop"):
        operations_between([task("a")], [edited("a", **field)])


def test_operations_touch_the_tasks_that_they_name() -> None:
    operations = operations_between(
        [task("a"), task("b"), task("c"), task("d")],
        [edited("e", dependencies=["a"]), edited("a"), edited("b", title="new"), edited("d")],
    )
    assert touched(operations) == {"a", "b", "c", "e"}


def test_reports_are_no_edits_and_a_start_is_one() -> None:
    before = plan(task("a"), task("b", status="in_progress", run=1), task("c"))
    now = plan(
        task("a", title="Other", priority=1),
        task("b", status="completed", run=1, verified=True),
        task("c", status="in_progress", run=1),
        task("d", title="One \x1bmore"),
        version=9,
    )
    assert edits_between(before, now) == {
        "a": "task a: title, priority changed",
        "c": "task c: it has started",
        "d": "task d was added: One more",
    }
    assert edits_between(now, before)["d"] == "task d was dropped"
