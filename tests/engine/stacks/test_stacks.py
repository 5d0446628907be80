"""Stacks of workflow sessions on the real scripts; D2 to D25 are lines of the requirements."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Any

import pytest
from pydantic import JsonValue

from app import stacks
from app.core.records import Reply
from app.errors import InvalidDocument
from app.stacks import TRIES, StackCall, WorkflowFilter
from leadhand.contract.stacks import StartWorkflow
from leadhand.errors import NoActiveWorkflow, StackRefused, WorkflowNotStacked, WorkflowUnknown
from leadhand.models.stacks import StackChange, StackView, WorkflowSession
from tests.engine.driving import Bench
from tests.engine.test_fsck import audit
from tests.engine.world import World

ANY = WorkflowFilter()


@pytest.fixture
def world(bench: Bench) -> Iterator[World]:
    world = World.of(bench)
    yield world
    assert audit(world.engine.audit.run).items == []


def call(workflow: str | None = None, key: str | None = None, stack: str = "s") -> StackCall:
    return StackCall(stack, workflow, "ann", key)


def new(name: str = "release", step: str = "build") -> StartWorkflow:
    return StartWorkflow(job_name="web", workflow_name=name, goal=f"do {name}", first_step_id=step)


def start(world: World, name: str = "release", **more: str) -> str:
    """Start a workflow session; returns its id."""
    world.now += 1000
    return session(stacks.start(world.engine, call(**more), new(name))).session_id


def session(change: StackChange) -> WorkflowSession:
    assert change.workflow is not None
    return change.workflow


def look(world: World, stack: str = "s") -> StackView:
    return stacks.read_stack(world.engine, stack)


def names(world: World) -> list[str]:
    return [one.workflow_name for one in look(world).workflows]


def parents(world: World) -> list[str | None]:
    return [one.parent_id for one in look(world).workflows]


def test_d3_started_workflow_session_is_active_and_has_all_that_was_given(world: World) -> None:
    given = StartWorkflow(
        job_name="web",
        workflow_name="release",
        goal="ship it",
        first_step_id="build",
        instance_id="v2",
        folder="/work/web",
        place="here",
    )
    change = stacks.start(world.engine, call(), given)
    found = session(change)
    assert (found.job_name, found.workflow_name, found.goal) == ("web", "release", "ship it")
    assert (found.instance_id, found.current_step_id, found.current_entry_index) == (
        "v2",
        "build",
        0,
    )
    assert (found.status, found.started_at) == ("active", "1970-01-01T00:16:40.000+00:00")
    assert (found.completed_at, found.abort_reason, found.step_progress) == (None, None, {})
    assert (change.stack.folder, change.stack.place) == ("/work/web", "here")
    assert change.stack == look(world)
    assert change.stack.active is not None
    assert change.stack.active.session_id == found.session_id


def start_as(world: World, *ids: str) -> str:
    """Start a workflow session under the first of these ids that is unused; returns its id."""
    found = stacks.start(world.engine, call(), new(), new_id=cycle(ids).__next__)
    return session(found).session_id


def test_d2_a_used_id_is_not_given_again(world: World) -> None:
    first, second = "0000000a", "0000000b"
    found = [start_as(world, first, second) for _ in range(2)]
    assert found == [first, second]
    stacks.complete(world.engine, call(second))
    stacks.delete(world.engine, call(first))
    ref = world.session()
    with pytest.raises(StackRefused, match=f"no unused id was found in {TRIES} tries"):
        start_as(world, first, second, ref.id)


def test_d6_d7_active_workflow_session_is_the_top_and_ids_reach_the_whole_stack(
    world: World,
) -> None:
    with pytest.raises(NoActiveWorkflow, match=r"^No active workflow session. Use start_workflow"):
        stacks.start_step(world.engine, call(), "build")
    below, top = start(world, "below"), start(world, "top")
    assert session(stacks.start_step(world.engine, call(), "x")).session_id == top
    assert session(stacks.start_step(world.engine, call(below), "y")).current_step_id == "y"
    for change in (
        lambda: stacks.start_step(world.engine, call("00000000"), "x"),
        lambda: stacks.complete_step(world.engine, call("00000000"), "x", {}),
        lambda: stacks.record_quality_attempt(world.engine, call("00000000"), "x"),
        lambda: stacks.advance(world.engine, call("00000000"), "x", 1),
        lambda: stacks.complete(world.engine, call("00000000")),
        lambda: stacks.abort(world.engine, call("00000000"), "why"),
    ):
        with pytest.raises(
            WorkflowNotStacked, match=r"^Session '00000000' not found in active stack;"
        ):
            change()
    stacks.complete(world.engine, call(below))
    with pytest.raises(WorkflowNotStacked):
        stacks.complete(world.engine, call(below))


def test_d8_d20_restarted_step_keeps_its_end_and_its_outputs(world: World) -> None:
    start(world)
    first = session(stacks.start_step(world.engine, call(), "test")).step_progress["test"]
    world.now += 1000
    stacks.complete_step(world.engine, call(), "test", {"report": "a.txt"}, "fine")
    world.now += 1000
    again = session(stacks.start_step(world.engine, call(), "test"))
    step = again.step_progress["test"]
    assert again.current_step_id == "test"
    assert step.started_at is not None
    assert first.started_at is not None
    assert step.started_at > first.started_at
    assert step.completed_at is not None
    assert step.completed_at < step.started_at
    assert (step.outputs, step.notes) == ({"report": "a.txt"}, "fine")


def test_d9_d20_completed_step_without_start_begins_at_its_end(world: World) -> None:
    start(world)
    given: dict[str, JsonValue] = {
        "files": ["a", "b"],
        "empty": [],
        "none": {},
        "n": 1.5,
        "big": 2**53,
        "ü": None,
    }
    found = session(stacks.complete_step(world.engine, call(), "test", given, "notes"))
    step = found.step_progress["test"]
    assert (step.outputs, step.notes, step.step_id) == (given, "notes", "test")
    assert step.started_at == step.completed_at
    assert found.current_step_id == "build"
    step = session(stacks.complete_step(world.engine, call(), "test", {"other": 1})).step_progress[
        "test"
    ]
    assert (step.outputs, step.notes) == ({"other": 1}, None)


def test_d10_d25_attempts_are_counted_per_step_and_a_repeated_call_counts_once(
    world: World,
) -> None:
    start(world)
    counts = [
        stacks.record_quality_attempt(world.engine, call(), "test").quality_attempts
        for _ in range(3)
    ]
    assert counts == [1, 2, 3]
    once = [stacks.record_quality_attempt(world.engine, call(key="k"), "test") for _ in range(2)]
    assert [one.quality_attempts for one in once] == [4, 4]
    step = session(once[1]).step_progress["test"]
    assert (step.quality_attempts, step.started_at, step.completed_at) == (4, None, None)


def test_d11_advance_goes_forwards_and_back(world: World) -> None:
    start(world)
    stacks.complete_step(world.engine, call(), "build", {"a": 1})
    found = session(stacks.advance(world.engine, call(), "deploy", 2))
    assert (found.current_step_id, found.current_entry_index) == ("deploy", 2)
    found = session(stacks.advance(world.engine, call(), "build", 0))
    assert (found.current_step_id, found.current_entry_index) == ("build", 0)
    assert found.step_progress["build"].outputs == {"a": 1}


def test_d12_d14_completion_in_the_middle_keeps_those_above_and_gives_them_a_new_parent(
    world: World,
) -> None:
    one, two, three = (start(world, name) for name in ("one", "two", "three"))
    assert parents(world) == [None, one, two]
    change = stacks.complete(world.engine, call(two))
    found = session(change)
    assert (found.status, found.completed_at) == ("completed", "1970-01-01T00:16:43.000+00:00")
    assert (names(world), parents(world)) == (["one", "three"], [None, one])
    assert change.stack.active is not None
    assert change.stack.active.session_id == three
    stacks.complete(world.engine, call(one))
    assert parents(world) == [None]
    assert stacks.complete(world.engine, call()).stack.active is None
    assert look(world).depth == 0


def test_d13_aborted_workflow_session_keeps_its_reason(world: World) -> None:
    below = start(world, "below")
    top = start(world, "top")
    change = stacks.abort(world.engine, call(), "not worth it")
    found = session(change)
    assert (found.session_id, found.status, found.abort_reason) == (top, "aborted", "not worth it")
    assert change.stack.active is not None
    assert change.stack.active.session_id == below


def test_d15_d22_later_outputs_win_in_the_order_in_which_steps_were_first_recorded(
    world: World,
) -> None:
    below = start(world, "below")
    stacks.start_step(world.engine, call(), "first")
    stacks.record_quality_attempt(world.engine, call(), "second")
    stacks.start_step(world.engine, call(), "open")
    world.now += 1000
    stacks.complete_step(world.engine, call(), "second", {"a": 2, "c": 3})
    stacks.complete_step(world.engine, call(), "first", {"a": 1, "b": 1})
    stacks.start_step(world.engine, call(), "first")
    start(world, "top")
    assert stacks.merge_outputs(world.engine, "s", below).outputs == {"a": 2, "b": 1, "c": 3}
    assert stacks.merge_outputs(world.engine, "s", None).outputs == {}
    with pytest.raises(WorkflowNotStacked):
        stacks.merge_outputs(world.engine, "s", "00000000")
    with pytest.raises(NoActiveWorkflow):
        stacks.merge_outputs(world.engine, "empty", None)


def test_d16_d23_ended_workflow_sessions_are_listed_newest_first(world: World) -> None:
    assert stacks.list_workflows(world.engine, "never used", ANY).items == []
    ids = [start(world, name) for name in ("one", "two", "one", "one")]
    stacks.complete(world.engine, call(ids[0]))
    listed = stacks.list_workflows(world.engine, "s", ANY).items
    assert [one.session_id for one in listed] == ids[::-1]
    wanted = WorkflowFilter(job_name="web", workflow_name="one", status="active")
    assert [one.session_id for one in stacks.list_workflows(world.engine, "s", wanted).items] == [
        ids[3],
        ids[2],
    ]
    assert stacks.list_workflows(world.engine, "s", WorkflowFilter(job_name="app")).items == []
    first = stacks.list_workflows(world.engine, "s", ANY, limit=3)
    stacks.delete(world.engine, call(ids[1]))
    rest = stacks.list_workflows(world.engine, "s", ANY, limit=3, cursor=first.next)
    assert [one.session_id for one in first.items + rest.items] == ids[::-1]
    with pytest.raises(InvalidDocument):
        stacks.list_workflows(world.engine, "s", ANY, cursor="bm9uZQ==")


def test_d17_deleted_workflow_session_leaves_the_stack_and_is_unknown(world: World) -> None:
    one, two, three = (start(world, name) for name in ("one", "two", "three"))
    change = stacks.delete(world.engine, call(two))
    assert change.workflow is None
    assert (names(world), parents(world)) == (["one", "three"], [None, one])
    with pytest.raises(WorkflowUnknown, match=rf"^Session not found: {two};"):
        stacks.read_workflow(world.engine, "s", two)
    with pytest.raises(WorkflowUnknown):
        stacks.delete(world.engine, call(two))
    with pytest.raises(WorkflowUnknown):
        stacks.delete(world.engine, call(three, stack="other"))


def test_d5_load_replaces_the_top_only_by_force(world: World) -> None:
    below, top = start(world, "below"), start(world, "top")
    with pytest.raises(StackRefused, match=f"Session '{top}' is on top"):
        stacks.load(world.engine, call(below))
    assert session(stacks.load(world.engine, call(top))).session_id == top
    assert names(world) == ["below", "top"]
    found = session(stacks.load(world.engine, call(below), force=True))
    assert (found.session_id, found.parent_id, names(world)) == (below, None, ["below"])
    assert stacks.read_workflow(world.engine, "s", top).status == "active"
    stacks.complete(world.engine, call(below))
    with pytest.raises(StackRefused, match="has ended"):
        stacks.load(world.engine, call(below))
    assert session(stacks.load(world.engine, call(top))).parent_id is None
    with pytest.raises(WorkflowUnknown, match=r"^Session not found: 00000000;"):
        stacks.load(world.engine, call("00000000"))
    with pytest.raises(StackRefused, match="belongs to another stack"):
        stacks.load(world.engine, call(top, stack="other"), force=True)


def test_d5_load_imports_a_record_that_the_store_does_not_have(world: World) -> None:
    start(world)
    stacks.record_quality_attempt(world.engine, call(), "second")
    stacks.start_step(world.engine, call(), "first")
    stacks.complete_step(world.engine, call(), "second", {"list": [], "n": 1}, "notes")
    told = session(stacks.advance(world.engine, call(), "first", 7))
    world.engine.store._redis.flushall()
    found = session(stacks.load(world.engine, call(told.session_id), told))
    assert found == told.model_copy(update={"revision": found.revision})
    assert list(found.step_progress) == ["second", "first"]
    assert found.revision > told.revision
    stacks.record_quality_attempt(world.engine, call(), "third")
    merged = session(stacks.complete_step(world.engine, call(), "third", {"n": 2})).merge_outputs()
    assert merged == {"list": [], "n": 2}
    stacks.delete(world.engine, call(told.session_id))
    with pytest.raises(WorkflowUnknown):
        stacks.load(world.engine, call(told.session_id), told)
    wrong = told.model_copy(update={"session_id": "0000000c", "started_at": "yesterday"})
    with pytest.raises(InvalidDocument, match="started_at"):
        stacks.load(world.engine, call("0000000c"), wrong)


def test_repeated_start_with_a_key_starts_once(world: World) -> None:
    first = stacks.start(world.engine, call(key="k"), new())
    start(world, "other")
    again = stacks.start(world.engine, call(key="k"), new())
    assert session(again).session_id == session(first).session_id
    assert again.stack.depth == 2
    assert stacks.start(world.engine, call(key="k"), new("another")).stack.depth == 3


def test_a_refused_call_is_not_remembered(world: World) -> None:
    with pytest.raises(NoActiveWorkflow):
        stacks.start_step(world.engine, call(key="k"), "build")
    start(world)
    assert session(stacks.start_step(world.engine, call(key="k"), "x")).current_step_id == "x"


def test_each_change_has_a_version_of_its_own(world: World) -> None:
    versions = [look(world).version]
    start(world)
    versions.append(look(world).version)
    change = stacks.start_step(world.engine, call(), "x")
    versions += [change.stack.version, look(world).version]
    assert versions == [0, 1, 2, 2]
    assert session(change).revision == 2


def test_stacks_are_separate_and_listed_by_their_last_change(world: World) -> None:
    start(world, "one", stack="a")
    start(world, "two", stack="b")
    world.now += 1000
    stacks.advance(world.engine, call(stack="a"), "test", 1)
    page = stacks.list_stacks(world.engine, limit=1)
    rest = stacks.list_stacks(world.engine, limit=1, cursor=page.next)
    listed = [(one.name, one.depth, one.workflow, one.step) for one in page.items + rest.items]
    assert listed == [("a", 1, "web/one", "test"), ("b", 1, "web/two", "build")]


def test_ended_workflow_sessions_expire_and_active_ones_do_not(world: World) -> None:
    below, top = start(world, "below"), start(world, "top")
    redis = world.engine.store._redis
    stacks.complete(world.engine, call(top))
    assert redis.ttl(f"lh:workflow:{top}") > 0
    stays = [f"lh:workflow:{below}", "lh:stack:s", "lh:stack-all:s", "lh:stack-line:s"]
    assert [redis.ttl(key) for key in stays] == [-1] * 4
    stacks.complete(world.engine, call(below))
    assert all(redis.ttl(key) != -1 for key in stays)
    redis.delete(f"lh:workflow:{top}")  # expired
    again = start(world, "again")
    assert [redis.ttl(key) for key in ("lh:stack:s", "lh:stack-all:s")] == [-1, -1]
    listed = stacks.list_workflows(world.engine, "s", ANY).items
    assert [one.session_id for one in listed] == [again, below]
    assert redis.zcard("lh:stack-all:s") == 2


def test_expired_stacks_leave_the_list_of_stacks(world: World) -> None:
    redis = world.engine.store._redis
    for number in range(8):
        start(world, stack=f"s{number}")
    redis.delete("lh:stack:s1", "lh:stack-line:s1", "lh:stack-all:s1")  # expired
    names = [one.name for one in stacks.list_stacks(world.engine).items]
    assert set(names) == {f"s{number}" for number in range(8)} - {"s1"}
    for _ in range(8):  # each start looks at a few of the stacks
        world.now += 1
        start(world, stack="s2")
    assert redis.zscore("lh:stacks", "s1") is None


def test_a_deletion_leaves_no_stack_that_never_expires(world: World) -> None:
    redis, id_ = world.engine.store._redis, start(world)
    stacks.complete(world.engine, call(id_))
    redis.delete("lh:stack:s", "lh:stack-all:s")  # expired
    stacks.delete(world.engine, call(id_))
    assert redis.ttl("lh:stack:s") > 0


def test_limits_are_refused_with_what_to_do(world: World) -> None:
    for _ in range(100):
        start(world)
    with pytest.raises(StackRefused, match="has 100 workflow sessions"):
        start(world)
    top = look(world).workflows[-1].session_id
    world.engine.store._redis.hset(f"lh:workflow:{top}", "steps", "999")
    stacks.start_step(world.engine, call(), "s1")
    with pytest.raises(StackRefused, match="has 1000 steps"):
        stacks.start_step(world.engine, call(), "one more")
    stacks.start_step(world.engine, call(), "s1")
    with pytest.raises(InvalidDocument, match="more than 65536"):
        stacks.complete_step(world.engine, call(), "s1", {"a": "x" * 65_536})
    with pytest.raises(InvalidDocument, match="have a credential"):
        stacks.complete_step(world.engine, call(), "s1", {"a": "sk-abcdefgh12345678"})


def test_outputs_of_all_steps_together_have_a_limit(world: World) -> None:
    big = {"a": "x" * 65_000}
    start(world)
    for number in range(16):
        stacks.complete_step(world.engine, call(), f"s{number}", big)
    with pytest.raises(StackRefused, match="more than 1048576 bytes"):
        stacks.complete_step(world.engine, call(), "s16", big)
    assert "s16" not in session(stacks.complete_step(world.engine, call(), "s1", big)).step_progress
    stacks.complete_step(world.engine, call(), "s1", {}, "short")
    full = session(stacks.complete_step(world.engine, call(), "s16", big))
    world.engine.store._redis.flushall()
    stacks.load(world.engine, call(full.session_id), full)
    with pytest.raises(StackRefused, match="more than 1048576 bytes"):
        stacks.complete_step(world.engine, call(), "s17", big)


def test_secrets_in_texts_are_redacted(world: World) -> None:
    secret = "sk-abcdefgh12345678"
    change = stacks.start(world.engine, call(), new().model_copy(update={"goal": f"use {secret}"}))
    assert session(change).goal == "use [redacted]"
    found = session(stacks.complete_step(world.engine, call(), "x", {}, f"with {secret}"))
    assert found.step_progress["x"].notes == "with [redacted]"
    assert session(stacks.abort(world.engine, call(), secret)).abort_reason == "[redacted]"


def test_moved_stack_has_all_of_its_workflow_sessions_under_the_new_name(world: World) -> None:
    ended = start(world, "ended")
    stacks.complete(world.engine, call())
    below, top = start(world), start(world, "fix")
    change = stacks.move(world.engine, call(key="one"), "t", "/new", "here")
    again = stacks.move(world.engine, call(key="one"), "t", "/new", "here")
    assert change.stack.model_dump() == again.stack.model_dump()
    moved = look(world, "t")
    assert (moved.name, moved.folder, moved.place) == ("t", "/new", "here")
    assert [one.session_id for one in moved.workflows] == [below, top]
    assert look(world).workflows == []
    assert stacks.read_workflow(world.engine, "t", ended).status == "completed"
    listed = stacks.list_workflows(world.engine, "t", ANY).items
    assert [one.session_id for one in listed] == [top, below, ended]
    assert [one.name for one in stacks.list_stacks(world.engine).items] == ["t"]
    stacks.complete(world.engine, call(stack="t"))
    assert session(stacks.load(world.engine, call(below, stack="t"))).session_id == below


def test_stack_is_moved_onto_no_other_one(world: World) -> None:
    start(world)
    kept = start(world, stack="t")
    with pytest.raises(StackRefused, match="'t' exists already"):
        stacks.move(world.engine, call(), "t", None, None)
    with pytest.raises(StackRefused, match="never been used"):
        stacks.move(world.engine, call(stack="nothing"), "u", None, None)
    assert [one.session_id for one in look(world, "t").workflows] == [kept]


def test_a_call_to_a_store_that_does_not_answer_delays_no_other_for_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of one process take turns to change a stack."""
    start(world)
    run, asked, answers = world.engine.store.run, threading.Event(), threading.Event()

    def run_once_it_answers(*args: Any, **more: Any) -> Reply:
        if not asked.is_set():
            asked.set()
            answers.wait(30)
        return run(*args, **more)

    monkeypatch.setattr(world.engine.store, "run", run_once_it_answers)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(stacks.advance, world.engine, call(), "build", 1)
        asked.wait(30)
        try:
            other = threads.submit(stacks.advance, world.engine, call(), "deploy", 2)
            assert session(other.result(timeout=10)).current_step_id == "deploy"
        finally:
            answers.set()
        assert session(first.result()).current_step_id == "build"
