"""The file in which a person edits the tasks of a plan: written, read again, and refused."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leadhand.cli.plan_editing import (
    TasksInvalid,
    format_tasks,
    parse_tasks,
    planned_tasks,
    read_tasks,
)
from leadhand.models.folder_settings import TomlUnreadable
from leadhand.models.views.plan import PlanView, TaskView

#: Texts as a plan may hold them; documents strip white space around them.
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60).map(str.strip)


def plan(*tasks: TaskView, **more: object) -> PlanView:
    fields = {"session": "1a2b3c4d", "state": "refining", "version": 3, "request": "r", **more}
    return PlanView.model_validate({**fields, "tasks": list(tasks)})


def task(id_: str, **more: object) -> TaskView:
    return TaskView.model_validate({"id": id_, "title": id_.upper(), "status": "pending", **more})


@given(TEXTS, TEXTS, TEXTS)
def test_written_texts_are_read_again(title: str, description: str, notes: str) -> None:
    text = format_tasks(plan(task("a", title=title or "t", description=description, notes=notes)))
    (found,) = parse_tasks(tomllib.loads(text), "file").tasks
    assert (found.title, found.description, found.notes) == (title or "t", description, notes)


def test_written_file_has_each_field_that_differs_from_its_default() -> None:
    whole = task(
        "b", dependencies=["a"], agent="claude", model="m", checkers=["lint"], rule="any",
        file_scope=["src"], priority=1, max_iterations=7, notes="careful",
    )  # fmt: skip
    text = format_tasks(plan(task("a", description="one\ntwo"), whole, checkers=["lint", "tests"]))
    found = parse_tasks(tomllib.loads(text), "file")
    assert (found.session, found.version) == ("1a2b3c4d", 3)
    plain, full = found.tasks
    assert plain.description == "one\ntwo"
    assert plain.model_fields_set == {"id", "title", "dependencies", "description"}
    shown = whole.model_dump()
    assert {name: shown[name] for name in full.model_fields_set} == json.loads(
        full.model_dump_json(exclude_unset=True)
    )
    assert "lint, tests" in text
    assert '"""\none\ntwo\n"""' in text


def test_started_task_says_what_may_change() -> None:
    text = format_tasks(plan(task("a", status="in_progress", session="0000000a", run=1)))
    assert "# in_progress (session 0000000a); of a task that has started only notes" in text


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("text", "is not a list of tasks"),
        ({"tasks": []}, "has no tasks"),
        ({"steps": []}, "'steps' is not known"),
        ({"tasks": [{"id": "a", "title": "A"}], "version": "3"}, "version is '3'"),
        ([{"title": "A"}], "task 1: id is missing"),
        ([{"id": "a"}], "task 'a': title is missing"),
        ([{"id": "a", "title": "A", "depends": []}], "did you mean dependencies?"),
        ([{"id": "A b", "title": "A"}], "lower-case letters"),
        ([{"id": "a", "title": "A", "priority": 11}], "task 'a': priority is 11"),
        ([{"id": "a", "title": "A"}, {"id": "a", "title": "B"}], "two tasks have the id 'a'"),
        (
            [{"id": "tests", "title": "A"}, {"id": "b", "title": "B", "dependencies": ["test"]}],
            "did you mean 'tests'?",
        ),
        ([{"id": "a", "title": "A", "dependencies": ["a"]}], "a -> a; remove one dependency"),
        ([7], "task 1 is not an object"),
    ],
)
def test_invalid_tasks_are_refused_by_task_and_field(content: object, why: str) -> None:
    with pytest.raises(TasksInvalid) as caught:
        parse_tasks(content, "plan.toml")
    assert str(caught.value).startswith("plan.toml")
    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("t.json", "[{]", "is not JSON"),
        ("t.json", "\udcff", "is not UTF-8"),
        ("t.json", "[" * 100_000, "nested too deep"),
        ("t.toml", "[[tasks]]\nid = \n", "line 2: is not TOML"),
    ],
)
def test_unreadable_file_is_refused(tmp_path: Path, name: str, text: str, why: str) -> None:
    file = tmp_path / name
    file.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises((TasksInvalid, TomlUnreadable), match=why):
        read_tasks(file)


def test_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(TasksInvalid, match=r"t\.toml does not exist"):
        read_tasks(tmp_path / "t.toml")


def test_given_tasks_have_no_notes(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps([{"id": "a", "title": "A", "notes": "x"}]))
    with pytest.raises(TasksInvalid, match="write them as description"):
        planned_tasks(file)


def test_proposed_tasks_may_depend_on_tasks_of_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(json.dumps({"tasks": [{"id": "b", "title": "B", "dependencies": ["a"]}]}))
    assert [one.id for one in planned_tasks(file, alone=False)] == ["b"]
    with pytest.raises(TasksInvalid, match="depends on 'a'"):
        planned_tasks(file)
