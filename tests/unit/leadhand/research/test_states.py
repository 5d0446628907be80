"""State files: written whole, read leniently, listed newest first."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from leadhand.research import (
    StateLoadError,
    StateManager,
    StepStatus,
    Workflow,
    WorkflowState,
    WorkflowStep,
)


@pytest.fixture
def manager(tmp_path: Path) -> StateManager:
    return StateManager(tmp_path / "states")


def state(session_id: str = "one", **more: Any) -> WorkflowState:
    steps = [WorkflowStep("a", "t", {"x": 1}), WorkflowStep("b", "t", {}, retry_count=2)]
    return WorkflowState(session_id, Workflow("w", "d", steps, {"m": 1}), **more)


def test_folder_is_created_on_construction(tmp_path: Path) -> None:
    StateManager(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


def test_state_is_read_as_it_was_saved(manager: StateManager) -> None:
    saved = state(
        status="failed", completed_steps=["a"], step_results={"a": [1]}, errors=["no"],
        current_step=1, leadhand_session="0000000a", run_key="k",
    )  # fmt: skip
    asyncio.run(manager.save_state(saved))
    assert asyncio.run(manager.load_state("one")) == saved


def test_step_that_names_no_retries_still_names_none_after_loading(manager: StateManager) -> None:
    asyncio.run(manager.save_state(state()))
    loaded = asyncio.run(manager.load_state("one"))
    assert loaded is not None
    assert loaded.workflow is not None
    assert [step.retries(3) for step in loaded.workflow.steps] == [3, 2]


def test_file_has_the_fields_of_the_seed(manager: StateManager) -> None:
    asyncio.run(manager.save_state(state(status="running")))
    text = (manager.state_dir / "one.json").read_text()
    fields = json.loads(text)
    assert {
        "session_id", "workflow_name", "status", "current_step", "completed_steps",
        "step_results", "errors", "started_at", "updated_at",
    } <= set(fields)  # fmt: skip
    assert (fields["current_step_name"], fields["error_count"]) == ("a", 0)
    assert text.startswith('{\n  "session_id"')
    assert [path.name for path in manager.state_dir.iterdir()] == ["one.json"]


def test_unknown_state_is_none(manager: StateManager) -> None:
    assert asyncio.run(manager.load_state("unknown")) is None
    assert asyncio.run(manager.delete("unknown")) is False


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"session_id": "one", "status": 1}', "\x80"])
def test_damaged_state_is_none_unless_strict(manager: StateManager, text: str) -> None:
    (manager.state_dir / "one.json").write_bytes(text.encode("latin-1"))
    assert asyncio.run(manager.load_state("one")) is None
    with pytest.raises(StateLoadError, match=r"one\.json cannot be read"):
        asyncio.run(manager.load_state("one", strict=True))


def test_list_is_newest_first_and_skips_damaged_files(manager: StateManager) -> None:
    for name in ("first", "second"):
        asyncio.run(manager.save_state(state(name)))
    (manager.state_dir / "broken.json").write_text("{")
    listed = asyncio.run(manager.list_sessions())
    assert [one["session_id"] for one in listed] == ["second", "first"]
    assert set(listed[0]) == {
        "session_id", "workflow_name", "status", "current_step", "started_at", "updated_at",
    }  # fmt: skip


@pytest.mark.parametrize("session_id", ["../x", "", "a/b", ".hidden", "a\nb"])
def test_id_that_is_no_file_name_is_refused(manager: StateManager, session_id: str) -> None:
    with pytest.raises(ValueError, match="is not valid"):
        asyncio.run(manager.load_state(session_id))


def test_old_states_that_ended_are_deleted(manager: StateManager) -> None:
    for name, status in (("old", "failed"), ("kept", "running"), ("new", "failed")):
        asyncio.run(manager.save_state(state(name, status=status)))
    for name in ("old", "kept"):
        path = manager.state_dir / f"{name}.json"
        fields = json.loads(path.read_text())
        path.write_text(json.dumps(fields | {"updated_at": "2001-01-01T00:00:00"}))
    assert asyncio.run(manager.cleanup_old_states()) == 1
    assert sorted(os.listdir(manager.state_dir)) == ["kept.json", "new.json"]  # noqa: PTH208


def test_only_states_that_did_not_complete_can_be_resumed(manager: StateManager) -> None:
    for status in ("failed", "completed"):
        asyncio.run(manager.save_state(state(status, status=status)))
    found = [asyncio.run(manager.can_resume(name)) for name in ("failed", "completed", "none")]
    assert found == [True, False, False]


def test_defaults_are_those_of_the_seed() -> None:
    step = WorkflowStep("a", "t", {})
    assert (step.critical, step.timeout, step.retry_count, step.description) == (
        True, 60.0, 0, None,
    )  # fmt: skip
    found = WorkflowState("one", None)
    assert (found.status, found.current_step, found.completed_steps) == ("pending", 0, [])
    assert [one.value for one in StepStatus] == [
        "pending", "running", "completed", "failed", "skipped", "interrupted",
    ]  # fmt: skip
