"""Forks: a new session has the outcomes of another one up to a point, and runs the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Step
from app.errors import InvalidDocument, PositionRefused
from app.sessions.documents import Changes
from app.sessions.fork import Wish
from leadhand.errors import ControlRefused, IdempotencyConflict, SessionUnknown
from tests.engine.driving import Bench
from tests.engine.graphs.graph_world import GraphWorld
from tests.engine.test_fsck import audit
from tests.engine.world import World


class Forked(GraphWorld):
    """A fork of a graph, driven as the graph is."""

    def __init__(self, origin: GraphWorld, wish: Wish, **more: Any) -> None:
        self.world, self.engine, self.calls = origin.world, origin.engine, []
        origin.world.hints.clear()
        self.id = self.engine.forks.fork(origin.id, wish, **more).session
        self.ref = SessionRef(self.id, self.id)


def graph(bench: Bench, *steps: Mapping[str, object], **more: object) -> GraphWorld:
    return GraphWorld(World.of(bench), steps, **more)


def chain(bench: Bench, **tools: Any) -> GraphWorld:
    """A graph that ended: a, then b with the topic, then c."""
    world = graph(
        bench,
        {"name": "a"},
        {"name": "b", "arguments": {"a": "${a}", "topic": "${inputs.topic}"}},
        {"name": "c", "arguments": {"b": "${b}"}},
        inputs={"topic": "queues"},
    )
    world.run(**({"a": lambda: 1} | tools))
    return world


def broken(**_: Any) -> None:
    raise ValueError("it is broken")


def test_fork_of_a_completed_session_runs_what_comes_after_the_point(bench: Bench) -> None:
    origin = chain(bench)
    before = origin.engine.queries.export(origin.id)
    fork = Forked(origin, Wish("a"))
    fork.run(b=lambda **_: "new")
    assert fork.called == ["b", "c"]
    assert fork.status == "completed"
    assert fork.result.results == {"a": 1, "b": "new", "c": {"b": "new"}}
    assert origin.engine.queries.export(origin.id) == before
    made = fork.engine.queries.session(fork.id).made_from
    assert made is not None
    assert (made.session, made.verb, made.after) == (origin.id, "fork", "a")


def test_changed_input_runs_what_refers_to_it_again(bench: Bench) -> None:
    origin = chain(bench)
    fork = Forked(origin, Wish(changes=Changes(inputs={"topic": "locks"})))
    fork.run()
    assert fork.called == ["b", "c"]
    assert fork.result.results["b"] == {"a": 1, "topic": "locks"}


def test_other_tool_does_what_runs_from_here_on(bench: Bench) -> None:
    origin = chain(bench)
    fork = Forked(origin, Wish("b", Changes(tools={"c": "noop"})))
    fork.run()
    assert fork.called == ["c"]
    engine = fork.engine
    programs = [engine.store.fields(ref)["program"] for ref in (origin.ref, fork.ref)]
    tools = [engine.registry.program(program).step("c").inputs["tool"] for program in programs]
    assert tools == ["echo", "noop"]


def test_fork_of_a_failed_session_goes_on_where_it_had_come_to(bench: Bench) -> None:
    origin = chain(bench, c=broken)
    assert origin.status == "failed"
    fork = Forked(origin, Wish())
    fork.run()
    assert fork.called == ["c"]
    assert (origin.status, fork.status) == ("failed", "completed")


def test_fork_of_an_active_session_leaves_it_alone(bench: Bench) -> None:
    origin = graph(
        bench, {"name": "a"}, {"name": "b", "depends_on": ["a"]}, {"name": "x"},
        {"name": "c", "depends_on": ["b", "x"]},
    )  # fmt: skip
    origin.carry_out(origin.grant("a"), {})
    grant = origin.grant("b")
    origin.carry_out(origin.grant("x"), {})
    fork = Forked(origin, Wish("a"))
    fork.run()
    assert fork.called == ["b", "c"]
    origin.carry_out(grant, {})
    origin.carry_out(origin.grant("c"), {})
    assert (origin.status, fork.status) == ("completed", "completed")


def test_items_of_a_for_each_are_copied_with_their_number(bench: Bench) -> None:
    origin = graph(
        bench,
        {"name": "a"},
        {"name": "b", "for_each": "${a}", "arguments": {"x": "${item}"}},
        {"name": "c", "arguments": {"all": "${b}"}},
    )
    origin.run(a=lambda: [1, 2, 3], b=lambda x: x)
    again = Forked(origin, Wish("a"))
    again.run(b=lambda x: -x)
    assert again.called == ["b", "b", "b", "c"]
    assert again.result.results["c"] == {"all": [-1, -2, -3]}


def test_same_key_gets_the_same_fork(bench: Bench) -> None:
    origin = chain(bench)
    forks = origin.engine.forks
    first = forks.fork(origin.id, Wish("a"), key="k")
    again = forks.fork(origin.id, Wish("a"), key="k")
    assert first.created
    assert again == first._replace(created=False)
    with pytest.raises(IdempotencyConflict):
        forks.fork(origin.id, Wish("b"), key="k")


def test_repeated_call_with_a_key_keeps_the_fork_that_the_first_one_made(bench: Bench) -> None:
    origin = chain(bench)
    store = type(origin.engine.store)
    call = store.fork

    def repeated(self: Any, *given: Any) -> Any:
        call(self, *given)  # its reply is lost
        return call(self, *given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "fork", repeated)
        fork = origin.engine.forks.fork(origin.id, Wish("a"), key="k")
    assert fork.created
    ref = SessionRef(fork.session, fork.session)
    outcomes = origin.engine.store.values(ref, "out", ["a"])
    assert json.loads(outcomes["a"])["value"] == 1
    assert audit(origin.engine.audit.run).items == []


def test_fork_that_dies_midway_leaves_nothing_visible(bench: Bench) -> None:
    origin = chain(bench)
    store = origin.engine.store
    before = {view.id for view in origin.engine.queries.sessions().items}
    store.copies().copy(origin.ref, SessionRef("f0f0f0f0", "f0f0f0f0"))
    assert {view.id for view in origin.engine.queries.sessions().items} == before
    left = list(bench.redis.scan_iter("*{f0f0f0f0}*"))
    assert left
    assert all(0 < bench.redis.ttl(key) <= 3600 for key in left)
    assert audit(origin.engine.audit.run).items == []


def test_fork_of_a_torn_copy_is_made_anew(bench: Bench) -> None:
    origin = chain(bench)
    copies = type(origin.engine.store.copies())
    whole, tries = copies.copy, []

    def torn(self: Any, source: SessionRef, target: SessionRef) -> Any:
        copied = whole(self, source, target)
        tries.append(target)
        if len(tries) == 1:
            bench.redis.hdel(origin.engine.store.keys.part(target, "out"), "a")
        return copied

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(copies, "copy", torn)
        fork = Forked(origin, Wish("a"))
    assert [target.id for target in tries[1:]] == [fork.id]
    assert list(bench.redis.scan_iter(f"*{{{tries[0].id}}}*")) == []


def during_the_first_copy(origin: GraphWorld, what: Callable[[], object]) -> pytest.MonkeyPatch:
    """Something happens to the session after its records were copied for a fork."""
    copies = type(origin.engine.store.copies())
    whole, tries = copies.copy, []

    def copy(self: Any, source: SessionRef, target: SessionRef) -> Any:
        copied = whole(self, source, target)
        tries.append(target)
        if len(tries) == 1:
            what()
        return copied

    patched = pytest.MonkeyPatch()
    patched.setattr(copies, "copy", copy)
    return patched


def test_fork_of_a_session_that_is_deleted_meanwhile_is_refused(bench: Bench) -> None:
    origin = graph(bench, {"name": "a"}, {"name": "b", "depends_on": ["a"]})
    origin.carry_out(origin.grant("a"), {})
    engine = origin.engine
    delete = partial(engine.deletion.delete, origin.id, force=True, seen=None)
    patched = during_the_first_copy(origin, delete)
    try:
        with pytest.raises(SessionUnknown):
            Forked(origin, Wish("a"))
    finally:
        patched.undo()
    assert list(engine.queries.sessions().items) == []


def test_fork_of_a_session_that_is_resumed_meanwhile_is_planned_anew(bench: Bench) -> None:
    origin = chain(bench, c=broken)

    def resume() -> None:
        origin.world.now += 1
        origin.engine.control.apply(origin.id, "resume")
        origin.run()

    patched = during_the_first_copy(origin, resume)
    try:
        with pytest.raises(PositionRefused, match="all of its steps are done"):
            Forked(origin, Wish())
    finally:
        patched.undo()
    assert origin.status == "completed"


def test_audit_finds_nothing_wrong_with_a_fork(bench: Bench) -> None:
    origin = chain(bench)
    fork = Forked(origin, Wish("a"))
    assert audit(origin.engine.audit.run).items == []
    base = origin.engine.store.keys.base(fork.ref)
    assert {bench.redis.ttl(key) for key in bench.redis.scan_iter(f"{base}*")} == {-1}
    fork.run()
    assert audit(origin.engine.audit.run).items == []
    export = json.loads(fork.engine.queries.export(fork.id).model_dump_json())
    assert export["session"]["made_from"]["session"] == origin.id


def test_what_cannot_be_forked_is_refused_with_the_way_out(bench: Bench) -> None:
    origin = chain(bench)
    forks = origin.engine.forks
    with pytest.raises(PositionRefused, match="nothing comes after it"):
        forks.fork(origin.id, Wish("c"))
    with pytest.raises(PositionRefused, match="all of its steps are done"):
        forks.fork(origin.id, Wish())
    with pytest.raises(InvalidDocument, match="did you mean 'topic'"):
        forks.fork(origin.id, Wish("a", Changes(inputs={"topik": "x"})))
    with pytest.raises(InvalidDocument, match=r"tools\.z"):
        forks.fork(origin.id, Wish("a", Changes(tools={"z": "noop"})))
    bench.redis.delete(origin.engine.store.keys.part(origin.ref, "request"))
    with pytest.raises(ControlRefused, match="its document is not stored"):
        forks.fork(origin.id, Wish("a"))


def test_session_with_a_folder_is_forked_as_it_is_only_on_request(
    bench: Bench, tmp_path: Path
) -> None:
    origin = graph(
        bench, {"name": "a", "tool": "x:a"}, {"name": "b", "tool": "x:b", "depends_on": ["a"]},
        cwd=str(tmp_path),
    )  # fmt: skip
    origin.carry_out(origin.grant("a"), {})
    with pytest.raises(InvalidDocument, match="folder as-is"):
        Forked(origin, Wish("a"))
    fork = Forked(origin, Wish("a", as_is=True))
    (warning,) = fork.engine.queries.session(fork.id).warnings
    assert warning.startswith(f"it works in {tmp_path} as it was when it was forked")


@pytest.mark.parametrize(("field", "value"), [("cwd", "/etc"), ("place", "x"), ("signature", "")])
def test_fork_signs_nothing_that_was_not_signed(bench: Bench, field: str, value: str) -> None:
    origin = chain(bench)
    store = origin.engine.store
    store._redis.hset(store.keys.part(origin.ref, "session"), field, value)
    with pytest.raises(ControlRefused, match="so it may not run; submit the document again"):
        origin.engine.forks.fork(origin.id, Wish("a", as_is=True))


def test_fork_of_a_changed_program_is_refused(bench: Bench) -> None:
    origin = chain(bench)
    store = origin.engine.store
    name = store.fields(origin.ref)["program"]
    key = store.keys.program(name)
    store._redis.hset(key, "document", str(store.program(name)).replace('"echo"', '"noop"'))
    origin.engine.registry._programs.cache_clear()
    with pytest.raises(ControlRefused, match="was changed after it was signed"):
        origin.engine.forks.fork(origin.id, Wish("a"))


def test_fork_with_a_change_calls_flows_as_its_origin_does(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "small.json").write_text('{"steps": [{"type": "wait", "seconds": 1}]}')
    world = World.of(bench)
    world.engine.catalog.folders = (tmp_path,)
    steps = ({"name": "a"}, {"name": "b", "tool": "flow:small", "depends_on": ["a"]})
    origin = GraphWorld(world, steps, inputs={"topic": "queues"})
    fork = Forked(origin, Wish(changes=Changes(inputs={"topic": "locks"})))
    engine = fork.engine
    programs = [engine.store.fields(ref)["program"] for ref in (origin.ref, fork.ref)]
    known, made = [engine.registry.program(one).step("b").inputs["document"] for one in programs]
    assert isinstance(made, dict)
    assert made == known


def test_fork_lists_the_warnings_of_the_failures_that_it_copies(bench: Bench) -> None:
    origin = graph(
        bench,
        {"name": "a", "critical": False},
        {"name": "b", "depends_on": ["a"], "critical": False},
        {"name": "c", "depends_on": ["b"]},
    )
    origin.run(a=broken, b=broken)
    warned = ["a failed and was passed over", "b failed and was passed over"]

    def warnings(fork: Forked) -> list[str]:
        return [w.partition(":")[0] for w in fork.engine.queries.session(fork.id).warnings]

    assert warnings(Forked(origin, Wish("b"))) == warned
    fork = Forked(origin, Wish("a"))
    assert warnings(fork) == warned[:1]
    fork.run(b=broken)
    assert warnings(fork) == warned


def test_child_session_works_in_the_folder_too(bench: Bench, tmp_path: Path) -> None:
    session = {"kind": "loop", "task": "t", "checkers": ["true"], "doer": {"command": "true"}}
    steps = ({"name": "a"}, {"name": "b", "session": session, "depends_on": ["a"]})
    origin = graph(bench, *steps, cwd=str(tmp_path))
    work = origin.engine.attempts.work(origin.ref, origin.grant("a"))
    origin.engine.attempts.settle(work, Outcome(word="succeeded", value=1), take=[], worker="w")
    with pytest.raises(InvalidDocument, match="folder as-is"):
        Forked(origin, Wish("a"))
    fork = Forked(origin, Wish("a", as_is=True))
    assert fork.engine.queries.session(fork.id).warnings


def test_fork_with_an_agent_replaces_the_agents_of_a_graph(bench: Bench) -> None:
    session = {"kind": "loop", "task": "t", "checkers": ["true"], "doer": {"agent": "old"}}
    steps = (
        {"name": "a"},
        {"name": "b", "tool": "agent:old", "arguments": {"task": "t"}, "depends_on": ["a"]},
        {"name": "c", "session": session, "depends_on": ["b"]},
    )
    origin = graph(bench, *steps)
    origin.carry_out(origin.grant("a"), {})
    fork = Forked(origin, Wish("a", Changes(agent="new"), as_is=True))
    program = fork.engine.registry.program(fork.engine.store.fields(fork.ref)["program"])
    text = json.dumps([step.inputs for _, step in program.walk() if isinstance(step, Step)])
    assert ("old" in text, text.count("new") >= 2) == (False, True)
    plain = graph(bench, {"name": "a"})
    with pytest.raises(InvalidDocument, match="no step of the graph calls an agent"):
        plain.engine.forks.fork(plain.id, Wish(None, Changes(agent="new"), as_is=True))


def test_changed_input_leaves_work_after_the_last_step(bench: Bench) -> None:
    origin = chain(bench)
    fork = Forked(origin, Wish("c", Changes(inputs={"topic": "locks"})))
    fork.run()
    assert fork.called == ["b", "c"]
    assert fork.status == "completed"
    with pytest.raises(PositionRefused, match="nothing comes after it"):
        Forked(origin, Wish("c"))
