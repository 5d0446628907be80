"""`StateManager` against a real API; D1 to D25 are lines of the requirements."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from leadhand.client.client import Client
from leadhand.models.stacks import StackView
from leadhand.stack import (
    StackEntry,
    StateError,
    StateManager,
    StepProgress,
    WorkflowSession,
    find_scope,
)
from tests.http_world import TOKEN, Served, served


@pytest.fixture(scope="module")
def api(module_store_url: str) -> Iterator[Served]:
    with served(module_store_url) as api:
        yield api


@pytest.fixture(autouse=True)
def environment(api: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADHAND_URL", api.url)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[StateManager]:
    manager = StateManager(tmp_path)
    yield manager
    manager.close()


async def start(manager: StateManager, workflow: str = "release", **more: Any) -> WorkflowSession:
    return await manager.create_session("web", workflow, f"do {workflow}", "build", **more)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def file_of(manager: StateManager, session: WorkflowSession) -> Path:
    return manager.sessions_dir / f"session_{session.session_id}.json"


def test_d1_a_new_manager_has_a_folder_a_list_and_a_lock(tmp_path: Path):
    manager = StateManager(project_root=tmp_path)
    assert manager.sessions_dir == tmp_path / ".deepwork" / "tmp"
    assert manager._session_stack == []
    assert isinstance(manager._lock, asyncio.Lock)
    assert not manager.sessions_dir.exists()


def test_d2_d3_d4_created_session_is_active_and_written_to_its_file(manager: StateManager):
    async def body() -> None:
        session = await start(manager, instance_id="v2")
        assert len(session.session_id) == 8
        assert (session.job_name, session.workflow_name, session.goal) == (
            "web", "release", "do release",
        )  # fmt: skip
        assert (session.instance_id, session.current_step_id) == ("v2", "build")
        assert (session.status, session.current_entry_index) == ("active", 0)
        assert session.started_at.endswith("+00:00")
        text = file_of(manager, session).read_text()
        assert text.startswith('{\n  "session_id": ')
        assert WorkflowSession.from_dict(json.loads(text)) == session
        assert manager._session_stack == [session]

    run(body)


def test_d4_a_save_writes_the_file_under_the_lock(manager: StateManager):
    async def body() -> None:
        session = await start(manager)
        file = file_of(manager, session)
        async with manager._lock:
            file.unlink()
            await manager._save_session_unlocked(session)
            waits = asyncio.create_task(manager._save_session(session))
            await asyncio.sleep(0)
            assert file.exists()
            assert not waits.done()
        await waits

    run(body)


def test_d5_load_replaces_the_top_or_fills_an_empty_stack(manager: StateManager):
    async def body() -> None:
        with pytest.raises(StateError, match=r"^Session not found: 0000000a$"):
            await manager.load_session("0000000a")
        with pytest.raises(StateError, match=r"^Session not found: nothing$"):
            await manager.load_session("nothing")
        below, top = await start(manager, "below"), await start(manager, "top")
        done = await start(manager, "done")
        await manager.complete_workflow()
        loaded = await manager.load_session(done.session_id)
        assert loaded is done
        assert [one.session_id for one in manager._session_stack] == [
            below.session_id, done.session_id,
        ]  # fmt: skip
        for _ in range(2):
            await manager.complete_workflow()
        assert await manager.load_session(top.session_id) is top
        assert manager._session_stack == [top]

    run(body)


def test_d5_load_imports_the_file_of_a_session_that_the_api_does_not_know(
    manager: StateManager, tmp_path: Path
):
    async def body() -> None:
        session = await start(manager)
        await manager.complete_step("build", {"a": 1}, "notes")
        other = StateManager(tmp_path / "copy")
        text = file_of(manager, session).read_text()
        id_ = "0" * 7 + "f"
        file = other.sessions_dir / f"session_{id_}.json"
        file.parent.mkdir(parents=True)
        file.write_text(text.replace(session.session_id, id_))
        loaded = await other.load_session(id_)
        assert loaded.step_progress["build"].outputs == {"a": 1}
        assert other.get_active_session() is loaded
        assert other.get_all_outputs() == {"a": 1}
        other.close()

    run(body)


def test_d6_d21_without_an_active_session_the_error_says_what_to_do(manager: StateManager):
    async def body() -> None:
        assert manager.get_active_session() is None
        assert manager.get_stack_depth() == 0
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: manager.start_step("x"),
            lambda: manager.complete_step("x", {}),
            lambda: manager.record_quality_attempt("x"),
            lambda: manager.advance_to_step("x", 1),
            lambda: manager.complete_workflow(),
            lambda: manager.abort_workflow("why"),
        ]
        text = r"^No active workflow session\. Use start_workflow to begin one\.$"
        for call in calls:
            with pytest.raises(StateError, match=text):
                await call()
        for read in (manager.require_active_session, manager.get_all_outputs):
            with pytest.raises(StateError, match=text):
                read()
        session = await start(manager)
        assert manager.require_active_session() is session

    run(body)


@pytest.mark.parametrize("id_", ["00000000", "nothing"])
def test_d7_d21_a_session_that_is_not_on_the_stack_is_refused(manager: StateManager, id_: str):
    async def body() -> None:
        session = await start(manager)
        assert manager._resolve_session(session.session_id) is session
        text = rf"^Session '{id_}' not found in active stack$"
        for call in (
            lambda: manager.start_step("x", session_id=id_),
            lambda: manager.complete_step("x", {}, session_id=id_),
            lambda: manager.record_quality_attempt("x", session_id=id_),
            lambda: manager.advance_to_step("x", 1, session_id=id_),
            lambda: manager.complete_workflow(session_id=id_),
            lambda: manager.abort_workflow("why", session_id=id_),
        ):
            with pytest.raises(StateError, match=text):
                await call()
        with pytest.raises(StateError, match=text):
            manager.get_all_outputs(id_)

    run(body)


def test_d8_d9_d11_d20_d24_steps_are_seen_in_the_object_that_was_returned(manager: StateManager):
    async def body() -> None:
        session = await start(manager)
        await manager.start_step("test")
        step = session.step_progress["test"]
        assert (session.current_step_id, step.started_at is not None) == ("test", True)
        await manager.complete_step("test", {"report": "a.txt"}, notes="fine")
        await manager.start_step("test")
        step = session.step_progress["test"]
        assert (step.outputs, step.notes) == ({"report": "a.txt"}, "fine")
        assert step.completed_at is not None
        await manager.complete_step("other", {"b": 2})
        other = session.step_progress["other"]
        assert other.started_at == other.completed_at
        assert session.current_step_id == "test"
        await manager.advance_to_step("deploy", 2)
        assert (session.current_step_id, session.current_entry_index) == ("deploy", 2)
        await manager.advance_to_step("test", 1)
        assert (session.current_step_id, session.current_entry_index) == ("test", 1)
        assert json.loads(file_of(manager, session).read_text()) == session.to_dict()

    run(body)


def test_d10_d18_d25_ten_concurrent_attempts_return_one_to_ten(manager: StateManager):
    async def body() -> None:
        session = await start(manager)
        found = await asyncio.gather(*(manager.record_quality_attempt("test") for _ in range(10)))
        assert sorted(found) == list(range(1, 11))
        assert session.step_progress["test"].quality_attempts == 10

    run(body)


def test_d12_d13_d14_sessions_end_anywhere_in_the_stack(manager: StateManager):
    async def body() -> None:
        one, two, three = [await start(manager, name) for name in ("one", "two", "three")]
        assert manager.get_stack_depth() == 3
        assert await manager.complete_workflow(two.session_id) is three
        assert (two.status, two.completed_at is not None) == ("completed", True)
        assert manager.get_stack() == [
            StackEntry(workflow="web/one", step="build"),
            StackEntry(workflow="web/three", step="build"),
        ]
        assert three.parent_id == one.session_id
        aborted, active = await manager.abort_workflow("not worth it")
        assert aborted is three
        assert active is one
        assert (three.status, three.abort_reason) == ("aborted", "not worth it")
        assert json.loads(file_of(manager, three).read_text())["status"] == "aborted"
        assert await manager.complete_workflow() is None

    run(body)


def test_d15_d22_outputs_are_merged_in_the_order_of_the_steps(manager: StateManager):
    async def body() -> None:
        below = await start(manager, "below")
        await manager.start_step("first")
        await manager.complete_step("second", {"a": 2})
        await manager.complete_step("first", {"a": 1, "b": 1})
        await manager.start_step("open")
        await start(manager, "top")
        assert manager.get_all_outputs() == {}
        assert manager.get_all_outputs(below.session_id) == {"a": 2, "b": 1}

    run(body)


def test_d16_d23_lists_have_ended_sessions_and_skip_corrupt_files(manager: StateManager):
    async def body() -> None:
        assert await manager.list_sessions() == []
        done = await start(manager, "release")
        await manager.complete_workflow()
        active = await start(manager, "release")
        other = await start(manager, "other")
        (manager.sessions_dir / "session_0000000a.json").write_text("{no json")
        (manager.sessions_dir / "session_0000000b.json").write_text('{"status": "odd"}')
        listed = await manager.list_sessions()
        assert {one.session_id for one in listed} == {
            done.session_id, active.session_id, other.session_id,
        }  # fmt: skip
        assert all(one.started_at >= two.started_at for one, two in pairwise(listed))
        assert await manager.find_active_sessions_for_workflow("web", "release") == [active]
        assert await manager.find_active_sessions_for_workflow("app", "release") == []

    run(body)


def test_files_that_were_deleted_or_damaged_are_written_again(manager: StateManager):
    async def body() -> None:
        done = await start(manager, "done")
        await manager.complete_workflow()
        below, top = await start(manager, "below"), await start(manager, "top")
        file_of(manager, below).unlink()
        file_of(manager, top).write_text("{")
        assert manager.get_stack_depth() == 2
        for one in (below, top):
            assert json.loads(file_of(manager, one).read_text()) == one.to_dict()
        file_of(manager, done).write_text("[]")
        await manager.list_sessions()
        assert json.loads(file_of(manager, done).read_text()) == done.to_dict()

    run(body)


def test_d17_deleted_session_leaves_the_stack_the_list_and_the_disk(manager: StateManager):
    async def body() -> None:
        below, top = await start(manager, "below"), await start(manager, "top")
        for _ in range(2):
            await manager.delete_session(below.session_id)
            assert manager.get_active_session() is top
            assert await manager.list_sessions() == [top]
            assert not file_of(manager, below).exists()
        await manager.delete_session("nothing")

    run(body)


def test_two_managers_of_a_folder_see_the_same_stack(manager: StateManager, tmp_path: Path):
    async def body() -> None:
        link = tmp_path.parent / f"{tmp_path.name} link"
        link.symlink_to(tmp_path)
        other = StateManager(link)
        session = await start(manager)
        seen = other.require_active_session()
        assert seen == session
        await other.start_step("test")
        assert manager.get_stack() == [StackEntry(workflow="web/release", step="test")]
        assert session.current_step_id == "test"
        apart = StateManager(tmp_path, scope="another")
        assert apart.get_stack_depth() == 0
        await other.complete_workflow()
        assert manager.get_active_session() is None
        for one in (other, apart):
            one.close()

    run(body)


def test_a_folder_that_cannot_be_written_loses_only_the_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def body() -> None:
        (tmp_path / ".deepwork").write_text("a file")
        manager = StateManager(tmp_path)
        session = await start(manager)
        assert manager.get_active_session() is session
        assert "files of workflow sessions are not written" in caplog.text
        manager.close()

    run(body)


def test_d19_models_are_read_and_written_as_json(manager: StateManager):
    async def body() -> None:
        session = await start(manager)
        await manager.complete_step("build", {"a": 1})
        again = WorkflowSession.from_dict(session.to_dict())
        assert again == session
        assert again.step_progress["build"].quality_attempts == 0
        assert StepProgress(step_id="x").outputs == {}
        for wrong in ({"status": "paused"}, {"session_id": None}):
            with pytest.raises(ValueError, match="validation error"):
                WorkflowSession.from_dict(session.to_dict() | wrong)

    run(body)


def test_the_stack_of_a_folder_is_named_by_host_and_real_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, api: Served
):
    here = find_scope(tmp_path)
    assert (here.folder, find_scope(tmp_path / "x" / "..")) == (str(tmp_path), here)
    monkeypatch.setenv("LEADHAND_PLACE", "elsewhere")
    there = find_scope(tmp_path)
    assert (there.place, there.stack == here.stack) == ("elsewhere", False)
    assert find_scope(tmp_path, "named").folder is None
    with pytest.raises(ValueError, match="cannot name a stack"):
        find_scope(tmp_path, "a b")
    with Client(api.url, TOKEN) as client:
        assert client.stack(there.stack).depth == 0


class Interrupted(Client):
    """A client with something that happens once, right after a call was answered or before it."""

    def __init__(self) -> None:
        super().__init__()
        self.before_workflow: Callable[[], object] | None = None
        self.after_stack: Callable[[], object] | None = None

    def stack(self, stack: str) -> StackView:
        view = super().stack(stack)
        happens, self.after_stack = self.after_stack, None
        if happens is not None:
            happens()
        return view

    def stack_workflow(self, stack: str, workflow: str | None = None) -> WorkflowSession:
        happens, self.before_workflow = self.before_workflow, None
        if happens is not None:
            happens()
        return super().stack_workflow(stack, workflow)


@pytest.fixture
def interrupted() -> Iterator[Interrupted]:
    with Interrupted() as client:
        yield client


def test_a_change_counts_though_another_session_is_deleted_before_it_is_read(
    manager: StateManager, tmp_path: Path, interrupted: Interrupted
):
    async def body() -> None:
        below, top = await start(manager, "below"), await start(manager, "top")
        other = StateManager(tmp_path, client=interrupted)
        scope = find_scope(tmp_path).stack
        interrupted.before_workflow = lambda: manager._client().delete_workflow(
            scope, below.session_id
        )
        assert await other.record_quality_attempt("test") == 1
        assert [one.session_id for one in other._session_stack] == [top.session_id]
        assert await other.record_quality_attempt("test") == 2

    run(body)


def test_an_older_view_does_not_replace_a_newer_one(tmp_path: Path, interrupted: Interrupted):
    manager = StateManager(tmp_path, client=interrupted)
    below, top = (asyncio.run(start(manager, name)) for name in ("below", "top"))
    ended: list[WorkflowSession | None] = []

    def complete() -> None:
        thread = Thread(target=lambda: ended.append(asyncio.run(manager.complete_workflow())))
        thread.start()
        thread.join()

    interrupted.after_stack = complete
    assert manager.get_active_session() is below
    assert ended == [below]
    assert top.status == "completed"
    assert manager._session_stack == [below]


def test_a_store_that_counts_from_one_again_is_seen(manager: StateManager, tmp_path: Path):
    async def body() -> None:
        first = await start(manager)
        for _ in range(3):
            await manager.record_quality_attempt("test")
        manager._scope = find_scope(tmp_path / "elsewhere")  # an empty stack, with version 0
        assert manager.get_active_session() is None
        assert first.status == "active"

    run(body)


def test_renamed_project_finds_its_own_stack_and_files_again(tmp_path: Path):
    async def body() -> None:
        old, new = tmp_path / "old", tmp_path / "new"
        old.mkdir()
        before = StateManager(old)
        ended, active = await start(before, "ended"), await start(before)
        await before.complete_workflow(ended.session_id)
        before.close()
        old.rename(new)
        renamed = StateManager(new)
        assert [one.session_id for one in renamed._refresh()] == [active.session_id]
        listed = {one.session_id: one.status for one in await renamed.list_sessions()}
        assert listed == {ended.session_id: "completed", active.session_id: "active"}
        assert (await renamed.load_session(ended.session_id)).session_id == ended.session_id
        renamed.close()

    run(body)


def test_project_whose_disk_is_not_mounted_keeps_its_stack(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def body() -> None:
        disk, copied = tmp_path / "disk", tmp_path / "copied"
        origin = disk / "origin"
        origin.mkdir(parents=True)
        before = StateManager(origin)
        active = await start(before)
        file = before.sessions_dir / ".stack"
        assert os.path.ismount(json.loads(file.read_text())["mount"])
        file.write_text(json.dumps({**json.loads(file.read_text()), "mount": str(disk)}))
        origin.rename(copied)  # as if it was copied, and the disk was then removed
        copy = StateManager(copied)
        assert copy.get_stack() == []
        sentence = f"{disk}, where that is, is not mounted; `leadhand stack move {origin}`"
        assert sentence in caplog.text
        assert [one.session_id for one in before._refresh()] == [active.session_id]
        before.close()
        copy.close()

    run(body)


def test_copied_project_says_whose_files_it_has_and_leaves_the_other_stack(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async def body() -> None:
        origin, copied = tmp_path / "origin", tmp_path / "copied"
        origin.mkdir()
        before = StateManager(origin)
        active = await start(before)
        shutil.copytree(origin, copied)
        copy = StateManager(copied)
        assert copy.get_stack() == []
        sentence = f"this is a copy of {origin}, to whose stack the files belong; `leadhand stack"
        assert sentence in caplog.text
        with pytest.raises(StateError, match=re.escape(f"`leadhand stack move {origin}`")):
            await copy.load_session(active.session_id)
        own = await start(copy)
        assert [one.session_id for one in copy._refresh()] == [own.session_id]
        assert [one.session_id for one in before._refresh()] == [active.session_id]
        before.close()
        copy.close()

    run(body)
