"""A Hypothesis state machine over a stack of workflow sessions, beside a plain list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from app import stacks
from app.stacks import StackCall, WorkflowFilter
from app.store.stacks import StackReads
from leadhand.contract.stacks import StartWorkflow
from leadhand.errors import NoActiveWorkflow, StackRefused, WorkflowNotStacked, WorkflowUnknown
from leadhand.models.stacks import StackChange, WorkflowSession
from tests.engine.driving import Bench
from tests.engine.world import World

STEPS = st.sampled_from(("plan", "build", "test"))
OUTPUTS: st.SearchStrategy[dict[str, Any]] = st.dictionaries(
    st.sampled_from("abc"), st.sampled_from((1, "x", [], {}, None))
)
#: Which workflow session a call is about: a place in all that were started, or the active one.
WHICH = st.none() | st.integers(0, 7)


@dataclass
class Step:
    """What the model knows of a step."""

    started: bool = False
    outputs: dict[str, Any] | None = None
    attempts: int = 0


@dataclass
class Workflow:
    """What the model knows of a workflow session; its steps are in the order of their records."""

    id: str
    step: str
    index: int = 0
    status: str = "active"
    steps: dict[str, Step] = field(default_factory=dict)
    parent: str | None = None

    def merged(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for step in self.steps.values():
            found |= step.outputs or {}
        return found


class StackMachine(RuleBasedStateMachine):
    """Any calls in any order, some of them repeated."""

    bench: ClassVar[Bench]

    @initialize()
    def begin(self) -> None:
        self.bench.restart()
        self.world = World.of(self.bench)
        self.engine = self.world.engine
        #: From the bottom to the top.
        self.line: list[Workflow] = []
        #: All that have a record, in the order in which they were started.
        self.all: list[Workflow] = []
        self.keys = 0

    @rule(step=STEPS, again=st.booleans())
    def start(self, step: str, *, again: bool) -> None:
        call, new = (
            StackCall("s", None, "ann", self.key()),
            StartWorkflow(job_name="job", workflow_name="flow", goal="go", first_step_id=step),
        )
        found = _of(stacks.start(self.engine, call, new))
        if again:
            assert _of(stacks.start(self.engine, call, new)) == found
        workflow = Workflow(found.session_id, step)
        self.all.append(workflow)
        self.push(workflow)

    @rule(which=WHICH, step=STEPS)
    def start_step(self, which: int | None, step: str) -> None:
        workflow = self.change(which, "start_step", step)
        if workflow:
            self.step(workflow, step).started = True
            workflow.step = step

    @rule(which=WHICH, step=STEPS, outputs=OUTPUTS)
    def complete_step(self, which: int | None, step: str, outputs: dict[str, Any]) -> None:
        workflow = self.change(which, "complete_step", step, outputs)
        if workflow:
            one = self.step(workflow, step)
            one.started, one.outputs = True, outputs

    @rule(which=WHICH, step=STEPS)
    def attempt(self, which: int | None, step: str) -> None:
        workflow = self.change(which, "record_quality_attempt", step)
        if workflow:
            self.step(workflow, step).attempts += 1

    @rule(which=WHICH, step=STEPS, index=st.integers(0, 3))
    def advance(self, which: int | None, step: str, index: int) -> None:
        workflow = self.change(which, "advance", step, index)
        if workflow:
            workflow.step, workflow.index = step, index

    @rule(which=WHICH, aborts=st.booleans())
    def finish(self, which: int | None, *, aborts: bool) -> None:
        workflow = self.change(which, *(("abort", "why") if aborts else ("complete",)))
        if workflow:
            workflow.status = "aborted" if aborts else "completed"
            self.remove(workflow)

    @rule(which=st.integers(0, 7))
    def delete(self, which: int) -> None:
        workflow = self.named(which)
        if workflow not in self.all:
            with pytest.raises(WorkflowUnknown):
                stacks.delete(self.engine, StackCall("s", "00000000"))
            return
        assert workflow is not None
        stacks.delete(self.engine, StackCall("s", workflow.id))
        self.remove(workflow)
        self.all.remove(workflow)
        with pytest.raises(WorkflowUnknown):
            stacks.delete(self.engine, StackCall("s", workflow.id))

    @rule(which=st.integers(0, 7), force=st.booleans())
    def load(self, which: int, *, force: bool) -> None:
        workflow = self.named(which)
        if workflow is None:
            return
        top = self.line[-1] if self.line else None
        call = StackCall("s", workflow.id)
        if not force and (top not in (None, workflow) or workflow.status != "active"):
            with pytest.raises(StackRefused):
                stacks.load(self.engine, call)
            return
        stacks.load(self.engine, call, force=force)
        if top is not workflow:
            self.remove(workflow)
            if top is not None:
                self.remove(top)
            self.push(workflow)

    @rule(ms=st.sampled_from((0, 1, 5000)))
    def wait(self, ms: int) -> None:
        self.world.now += ms

    @invariant()
    def stack_is_as_the_model_says(self) -> None:
        view = stacks.read_stack(self.engine, "s")
        seen = [(one.session_id, one.current_step_id, one.parent_id) for one in view.workflows]
        assert seen == [(one.id, one.step, one.parent) for one in self.line]
        assert view.depth == len(self.line)

    @invariant()
    def list_is_as_the_model_says(self) -> None:
        listed = stacks.list_workflows(self.engine, "s", WorkflowFilter(), limit=500)
        assert [_seen(one) for one in listed.items] == [_known(one) for one in self.all[::-1]]

    # The model

    def key(self) -> str:
        self.keys += 1
        return f"k{self.keys}"

    def named(self, which: int) -> Workflow | None:
        return self.all[which] if which < len(self.all) else None

    def change(self, which: int | None, verb: str, *given: Any) -> Workflow | None:
        """Call twice with one key; returns the workflow session that the change is about."""
        active = self.line[-1] if self.line else None
        workflow = active if which is None else self.named(which)
        named = None if which is None else workflow.id if workflow else "00000000"
        call = StackCall("s", named, "ann", self.key())
        if workflow is None or workflow not in self.line:
            with pytest.raises(NoActiveWorkflow if named is None else WorkflowNotStacked):
                getattr(stacks, verb)(self.engine, call, *given)
            return None
        first = getattr(stacks, verb)(self.engine, call, *given)
        try:
            again = getattr(stacks, verb)(self.engine, call, *given)
        except (NoActiveWorkflow, WorkflowNotStacked) as error:
            raise AssertionError("the repeated call was carried out again") from error
        assert first == again
        assert _of(first).session_id == workflow.id
        return workflow

    def step(self, workflow: Workflow, step: str) -> Step:
        return workflow.steps.setdefault(step, Step())

    def push(self, workflow: Workflow) -> None:
        workflow.parent = self.line[-1].id if self.line else None
        self.line.append(workflow)

    def remove(self, workflow: Workflow) -> None:
        if workflow not in self.line:
            return
        at = self.line.index(workflow)
        del self.line[at]
        if at < len(self.line):
            self.line[at].parent = self.line[at - 1].id if at else None


def _of(change: StackChange) -> WorkflowSession:
    assert change.workflow is not None
    return change.workflow


def _seen(one: WorkflowSession) -> tuple[Any, ...]:
    steps = [
        (name, step.started_at is not None, step.completed_at is not None, step.outputs,
         step.quality_attempts)
        for name, step in one.step_progress.items()
    ]  # fmt: skip
    return (
        one.session_id, one.status, one.current_step_id, one.current_entry_index, one.parent_id,
        steps, one.merge_outputs(),
    )  # fmt: skip


def _known(one: Workflow) -> tuple[Any, ...]:
    steps = [
        (name, step.started, step.outputs is not None, step.outputs or {}, step.attempts)
        for name, step in one.steps.items()
    ]
    return (one.id, one.status, one.step, one.index, one.parent, steps, one.merged())


def run(bench: Bench, *, examples: int) -> None:
    machine = type("Machine", (StackMachine,), {"bench": bench})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=25,
            deadline=None,
            derandomize=examples < 100,
            database=None,
            report_multiple_bugs=False,
            phases=(Phase.generate,) if examples < 100 else tuple(Phase),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_stack_is_as_a_plain_list_after_each_call(bench: Bench):
    run(bench, examples=12)


def test_attempts_of_a_step_are_counted(bench: Bench):
    engine = World.of(bench).engine
    stacks.start(
        engine,
        StackCall("s"),
        StartWorkflow(job_name="j", workflow_name="w", goal="", first_step_id="a"),
    )
    counts = [
        stacks.record_quality_attempt(engine, StackCall("s"), "a").quality_attempts for _ in "123"
    ]
    assert counts == [1, 2, 3]


def test_load_replaces_the_top_by_force_only(bench: Bench):
    engine = World.of(bench).engine
    new = StartWorkflow(job_name="j", workflow_name="w", goal="", first_step_id="a")
    below, top = (_of(stacks.start(engine, StackCall("s"), new)).session_id for _ in "12")
    with pytest.raises(StackRefused, match=f"'{top}' is on top"):
        stacks.load(engine, StackCall("s", below))
    stacks.load(engine, StackCall("s", below), force=True)


def test_a_deleted_session_is_in_no_list(bench: Bench):
    world = World.of(bench)
    started = _of(
        stacks.start(
            world.engine,
            StackCall("s"),
            StartWorkflow(job_name="j", workflow_name="w", goal="", first_step_id="a"),
        )
    )
    stacks.complete(world.engine, StackCall("s"))
    stacks.delete(world.engine, StackCall("s", started.session_id))
    assert world.engine.store.part(StackReads).members("s") == []


def test_an_id_of_a_deleted_session_is_not_given_again(bench: Bench):
    engine, ids = World.of(bench).engine, iter(["0000000a", "0000000a", "0000000b"])
    new = StartWorkflow(job_name="j", workflow_name="w", goal="", first_step_id="a")
    first = stacks.start(engine, StackCall("s"), new, new_id=ids.__next__)
    stacks.delete(engine, StackCall("s", _of(first).session_id))
    second = stacks.start(engine, StackCall("s"), new, new_id=ids.__next__)
    assert _of(second).session_id == "0000000b"


def test_change_between_the_read_and_the_write_of_another_is_kept(bench: Bench):
    world = World.of(bench)
    engine, store, call = world.engine, world.engine.store, StackCall("s", by="ann")
    stacks.start(
        engine, call, StartWorkflow(job_name="j", workflow_name="w", goal="", first_step_id="a")
    )
    clock = store._clock
    assert clock is not None
    counts: list[int | None] = []

    def change() -> int:
        """The time, which is asked for at the write: another call comes first."""
        store._clock = clock
        counts.append(stacks.record_quality_attempt(engine, call, "a").quality_attempts)
        return clock()

    asked = iter((clock, change))
    store._clock = lambda: next(asked)()
    counts.append(stacks.record_quality_attempt(engine, call, "a").quality_attempts)
    assert counts == [1, 2]
    assert stacks.read_stack(world.engine, "s").version == 3


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_stack_is_as_a_plain_list_after_each_call_of_many_runs(bench: Bench):
    run(bench, examples=150)
