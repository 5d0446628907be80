"""Child sessions: their end reaches their parent, and no parent waits for ever."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import JsonValue

from app.compiler import compile_document
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.core.records import Grant
from app.guards import Guarded
from app.plans import plans
from app.sessions.inbox import list_messages
from app.sessions.submit import About
from leadhand.errors import NoPlan
from leadhand.flows.documents import FlowDocument
from leadhand.models.documents import LoopDocument
from leadhand.models.plans import TaskReport
from tests.engine.guards.stops import gate, stop
from tests.engine.world import World
from tests.flows import llm
from workers.attempt.settle import LOOK_MS, park
from workers.tools.tool import tally

DOCUMENT: dict[str, JsonValue] = {
    "kind": "loop",
    "task": "t",
    "baseline": False,
    "checkers": [{"command": "true"}],
    "doer": {"command": "true"},
}
PARENT = Program(body=(Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}),))


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


def family(world: World, program: Program = PARENT) -> tuple[SessionRef, SessionRef]:
    """A parent whose step waits for its child."""
    id_ = world.engine.submit.program(program, About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    assert (
        park(world.engine, world.engine.attempts.work(parent, world.grant(parent, "kid"))) is None
    )
    (child,) = world.engine.store.children(parent)
    return parent, SessionRef(child, id_)


def test_program_names_no_receiver_for_its_children(world: World) -> None:
    """`leadhand import` removes the receivers of foreign sessions, and programs are signed."""
    document: dict[str, JsonValue] = {**DOCUMENT, "webhook": {"url": "https://receiver.example/"}}
    program = Program(body=(Step(id="kid", action=Action.CHILD, inputs={"document": document}),))
    _, child = family(world, program)
    fields = world.engine.store.fields(child)
    assert (fields["webhook"], fields["rings"]) == ("", "")
    world.engine.control.apply(child.id, "abort")
    assert world.engine.store.due_hooks(9) == []


def test_a_childs_end_is_its_parents_outcome(world: World) -> None:
    parent, child = family(world)
    assert world.engine.queries.session(parent.id).status == "waiting"
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.queries.session(parent.id).status == "completed"


def test_an_end_that_was_not_delivered_is_seen_by_the_sweep(world: World) -> None:
    parent, child = family(world)
    errand = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.queries.session(parent.id).status == "waiting"
    world.engine.transitions.deliver = errand
    world.later(1_000)
    assert world.engine.queries.session(parent.id).status == "completed"


def test_an_errand_of_a_newer_version_stays_for_whoever_knows_it(world: World) -> None:
    parent, child = family(world)
    errands = world.engine.store.keys.everywhere("errands")
    newer = f"bless|{child.member}"
    world.engine.store._redis.zadd(errands, {newer: world.now})
    world.engine.control.apply(parent.id, "stop")
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "stopped"
    due = world.engine.store._redis.zscore(errands, newer)
    assert due is not None
    assert due > world.now


def test_a_child_that_was_deleted_fails_its_parents_step(world: World) -> None:
    parent, child = family(world)
    world.engine.store._redis.delete(world.engine.store.keys.part(child, "session"))
    world.later(LOOK_MS + 1_000)
    view = world.engine.queries.session(parent.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert "deleted before it ended" in view.reason.text


@pytest.mark.parametrize("stopped", [True, False])
def test_who_waits_for_a_child_is_told_that_it_was_deleted(world: World, stopped: bool) -> None:
    parent, child = family(world)
    if stopped:
        world.engine.control.apply(child.id, "stop")
        assert world.engine.queries.session(parent.id).status == "waiting"
    world.engine.deletion.delete(child.id, force=True)
    assert child.id not in world.engine.store.children(parent)
    view = world.engine.queries.session(parent.id)
    assert view.status == "failed"
    assert view.reason is not None
    assert ("deleted before it ended" if stopped else "is aborted") in view.reason.text


def test_a_child_that_was_aborted_is_not_said_to_have_failed(world: World) -> None:
    kid = PARENT.body[0].model_copy(update={"critical": False, "label": "k"})
    id_ = world.engine.submit.program(Program(body=(kid,)), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    assert (
        park(world.engine, world.engine.attempts.work(parent, world.grant(parent, "kid"))) is None
    )
    (child,) = world.engine.store.children(parent)
    world.engine.control.apply(child, "abort")
    world.later(1_000)
    told = world.engine.queries.session(parent.id).warnings
    assert told == [f"k was passed over: child session {child} is aborted"]


def test_a_stopped_parent_stops_its_child_and_takes_it_along_when_resumed(world: World) -> None:
    parent, child = family(world)
    world.engine.control.apply(parent.id, "stop")
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "stopped"
    world.engine.control.apply(parent.id, "resume")
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "active"
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.queries.session(parent.id).status == "completed"


def test_a_stop_that_comes_late_leaves_the_child_of_a_resumed_parent_alone(world: World) -> None:
    _, child = family(world)
    world.engine.outbox.run(f"stop|{child.member}")
    assert world.engine.queries.session(child.id).status == "active"


def subflows(world: World) -> tuple[SessionRef, dict[str, SessionRef], dict[str, str]]:
    """A flow that waits for two subflows, and the step that waits for each."""
    document = FlowDocument.model_validate(
        {
            "name": "both",
            "steps": [{"type": "subflow", "flowNames": ["a", "b"]}, llm()],
            "flows": {name: {"steps": [llm()]} for name in ("a", "b")},
        }
    )
    about = About(kind="flow", name="both")
    id_ = world.engine.submit.program(compile_document(document), about).session
    parent, children, steps = SessionRef(id_, id_), dict[str, SessionRef](), dict[str, str]()
    for address in sorted(world.engine.store.members(parent, "live")):
        before = world.engine.store.children(parent)
        assert (
            park(world.engine, world.engine.attempts.work(parent, world.grant(parent, address)))
            is None
        )
        (child,) = world.engine.store.children(parent) - before
        children[address[-1]], steps[address[-1]] = SessionRef(child, id_), address
    return parent, children, steps


def tallied(world: World, parent: SessionRef) -> str:
    """What the step after the subflows is given of how they ended."""
    (address,) = world.engine.store.members(parent, "live")
    grant = world.grant(parent, address)
    work = world.engine.attempts.work(parent, grant)
    assert work.inputs["tool"] == "flow.tally"
    arguments = work.inputs["arguments"]
    assert isinstance(arguments, dict)
    return tally(arguments).text


def test_a_subflow_that_a_user_stopped_counts_as_stopped_and_its_flow_continues(
    world: World,
) -> None:
    parent, children, _ = subflows(world)
    world.engine.control.apply(children["a"].id, "stop", reason="not now")
    world.settle(children["b"], world.grant(children["b"], "llm1"))
    world.later(2_000)
    assert world.engine.queries.session(children["a"].id).status == "stopped"
    told = tallied(world, parent).splitlines()
    assert told[0] == "1 succeeded, 0 failed, 1 stopped"
    assert told[1] == f"a (session {children['a'].id}) is stopped: not now"
    assert world.engine.queries.session(parent.id).status == "active"
    warnings = world.engine.queries.session(parent.id).warnings
    assert warnings == [f"a was passed over: child session {children['a'].id} is stopped"]


def test_a_report_of_a_stop_that_was_lost_is_repeated(world: World) -> None:
    parent, children, _ = subflows(world)
    errand = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None
    world.engine.control.apply(children["a"].id, "stop")
    world.engine.transitions.deliver = errand
    world.engine.store.remove_errand(
        f"deliver|{children['a'].member}",
        world.engine.store.errand_score(f"deliver|{children['a'].member}") or 0,
    )
    world.settle(children["b"], world.grant(children["b"], "llm1"))
    world.later(LOOK_MS + 1_000)
    assert "1 stopped" in tallied(world, parent)


def test_a_subflow_that_stops_with_its_flow_continues_with_it(world: World) -> None:
    parent, children, steps = subflows(world)
    world.engine.control.apply(parent.id, "stop")
    world.later(LOOK_MS + 1_000)
    world.engine.control.apply(parent.id, "resume")
    world.later(LOOK_MS + 1_000)
    assert {world.engine.queries.session(child.id).status for child in children.values()} == {
        "active"
    }
    assert sorted(world.engine.store.members(parent, "live")) == sorted(steps.values())


def test_a_subflow_stopped_while_its_flow_is_stopped_counts_once_that_is_resumed(
    world: World,
) -> None:
    parent, children, steps = subflows(world)
    deliver = world.engine.transitions.deliver
    world.engine.transitions.deliver = lambda _: None
    world.engine.control.apply(children["a"].id, "stop")
    world.engine.control.apply(parent.id, "stop")
    world.engine.transitions.deliver = deliver
    world.later(2_000)
    assert sorted(world.engine.store.members(parent, "live")) == sorted(steps.values())
    world.engine.control.apply(parent.id, "resume")
    world.later(1_000)
    world.settle(children["b"], world.grant(children["b"], "llm1"))
    world.later(LOOK_MS + 1_000)
    assert "1 stopped" in tallied(world, parent)


def test_a_child_that_a_user_stopped_keeps_its_parent_waiting(world: World) -> None:
    """Where its step is critical, the parent cannot continue without it."""
    parent, child = family(world)
    world.engine.control.apply(child.id, "stop")
    world.later(LOOK_MS + 1_000)
    assert world.engine.queries.session(parent.id).status == "waiting"
    world.engine.control.apply(child.id, "resume")
    world.turn(child, 1, "accept", check="check.true")
    assert world.engine.queries.session(parent.id).status == "completed"


def test_a_stop_is_acknowledged_when_the_whole_tree_has_stopped(world: World) -> None:
    parent, child = family(world)
    grant = world.grant(child, "loop~1[1]/do")
    world.engine.control.apply(parent.id, "stop")
    world.later(1_000)
    assert world.engine.queries.session(parent.id).status == "stopping"
    assert world.claim(child, "loop~1[1]/do").why != "granted"
    world.engine.attempts.release(child, grant, why="stop")
    assert world.engine.queries.session(child.id).status == "stopped"
    assert world.engine.queries.session(parent.id).status == "stopped"


def test_an_abort_is_acknowledged_when_the_whole_tree_has_ended(world: World) -> None:
    parent, child = family(world)
    grant = world.grant(child, "loop~1[1]/do")
    assert world.engine.control.apply(parent.id, "abort").status == "aborting"
    assert world.engine.queries.session(child.id).status == "aborting"
    world.engine.attempts.release(child, grant, why="cancel")
    assert world.engine.queries.session(child.id).status == "aborted"
    assert world.engine.queries.session(parent.id).status == "aborted"


def test_a_stale_resume_leaves_the_child_of_a_stopped_parent_alone(world: World) -> None:
    parent, child = family(world)
    world.engine.control.apply(parent.id, "stop")
    world.later(1_000)
    errands = world.engine.store.keys.everywhere("errands")
    world.engine.store._redis.zadd(errands, {f"resume|{child.member}": world.now})
    world.later(1_000)
    assert world.engine.queries.session(child.id).status == "stopped"


def test_a_child_that_failed_is_not_run_anew_when_its_parent_is_resumed(world: World) -> None:
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}, critical=False)
    wait = Step(id="wait", action=Action.WAIT, inputs={"seconds": 600})
    id_ = world.engine.submit.program(
        Program(body=(kid, wait)), About(kind="loop", name="x")
    ).session
    parent = SessionRef(id_, id_)
    park(world.engine, world.engine.attempts.work(parent, world.grant(parent, "kid")))
    (id_,) = world.engine.store.children(parent)
    child = SessionRef(id_, parent.root)
    grant = world.grant(child, "loop~1[1]/do")
    world.settle(child, grant, Outcome(word="failed", retryable=False))
    assert world.engine.queries.session(child.id).status == "failed"
    world.engine.control.apply(parent.id, "stop")
    world.engine.control.apply(parent.id, "resume")
    world.later(2_000)
    assert world.engine.queries.session(child.id).status == "failed"


@pytest.mark.parametrize("verb", ["abort", "exit"])
def test_a_child_that_failed_stays_so_when_its_parent_ends(world: World, verb: Any) -> None:
    kid = Step(id="kid", action=Action.CHILD, inputs={"document": DOCUMENT}, critical=False)
    wait = Step(id="wait", action=Action.WAIT, inputs={"seconds": 600})
    id_ = world.engine.submit.program(
        Program(body=(kid, wait)), About(kind="loop", name="x")
    ).session
    parent = SessionRef(id_, id_)
    park(world.engine, world.engine.attempts.work(parent, world.grant(parent, "kid")))
    (id_,) = world.engine.store.children(parent)
    child = SessionRef(id_, parent.root)
    grant = world.grant(child, "loop~1[1]/do")
    world.settle(child, grant, Outcome(word="failed", retryable=False))
    world.engine.control.apply(parent.id, verb)
    world.later(2_000)
    assert world.engine.queries.session(parent.id).status in ("aborted", "exited")
    assert world.engine.queries.session(child.id).status == "failed"


def test_a_child_that_a_user_stopped_stays_so_when_its_parent_is_resumed(world: World) -> None:
    parent, child = family(world)
    world.engine.control.apply(child.id, "stop", reason="not now")
    world.engine.control.apply(parent.id, "stop")
    world.engine.control.apply(parent.id, "resume")
    world.later(2_000)
    assert world.engine.queries.session(child.id).status == "stopped"


def test_a_child_of_a_lost_attempt_ends_when_its_step_runs_anew(world: World) -> None:
    nodes = (Step(id="a", action=Action.TOOL), Step(id="b", action=Action.TOOL), *PARENT.body)
    id_ = world.engine.submit.program(Program(body=nodes), About(kind="loop", name="x")).session
    parent = SessionRef(id_, id_)
    world.settle(parent, world.grant(parent, "a"))
    (kid,) = world.settle(parent, world.grant(parent, "b")).grants
    work = world.engine.attempts.work(parent, kid)
    above: dict[str, JsonValue] = {"session": id_, "address": "kid", "fence": work.grant.fence,
             "base": world.engine.store.keys.base(parent)}  # fmt: skip
    document = LoopDocument.model_validate(DOCUMENT)
    child = world.engine.submit.document(document, root=id_, parent=above).session
    world.engine.attempts.release(parent, work.grant, why="drain")
    world.engine.control.apply(id_, "stop")
    world.later(2_000)
    world.engine.control.apply(id_, "resume", after="a")
    world.later(2_000)
    assert world.engine.queries.session(child).status == "aborted"
    assert world.engine.store.members(parent, "live") == ["b~2"]


def begun_by_a_doer(world: World) -> tuple[SessionRef, Grant, SessionRef]:
    """A session whose doer runs, its attempt, and the session that the doer began."""
    body = (Step(id="a", action=Action.AGENT), Step(id="b", action=Action.AGENT))
    id_ = world.engine.submit.program(Program(body=body), About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    grant = world.grant(ref, "a")
    return ref, grant, SessionRef(begun_by(world, ref, grant), id_)


def begun_by(world: World, ref: SessionRef, grant: Grant) -> str:
    """A session that the attempt begins."""
    above: dict[str, JsonValue] = {"session": ref.id, "address": grant.address,
             "fence": grant.fence, "base": world.engine.store.keys.base(ref)}  # fmt: skip
    document = LoopDocument.model_validate(DOCUMENT)
    return world.engine.submit.document(document, root=ref.root, parent=above).session


def test_an_exit_of_what_a_doer_began_is_an_exit_of_its_session_too(world: World) -> None:
    parent, doer, child = begun_by_a_doer(world)
    world.engine.control.apply(child.id, "exit", reason="redesign it")
    assert world.engine.attempts.beat(parent, doer).word == "ok", "it has a moment to finish"
    world.later(4_000)
    assert world.engine.attempts.beat(parent, doer).word == "cancel"
    world.engine.attempts.release(parent, doer, why="cancel")
    view = world.engine.queries.session(parent.id)
    assert view.status == "exited"
    assert view.reason is not None
    assert (view.reason.code, view.reason.at) == ("exit", "a")
    assert view.reason.root.text == "redesign it"
    assert world.engine.queries.result(parent.id).exit_reason == "redesign it"


def test_reason_of_an_exit_is_that_of_every_session_above(world: World) -> None:
    top, doer, middle = begun_by_a_doer(world)
    inner = world.grant(middle, "loop~1[1]/do")
    lowest = begun_by(world, middle, inner)
    world.engine.control.apply(lowest, "exit", reason="redesign it")
    world.later(4_000)
    world.engine.attempts.release(middle, inner, why="cancel")
    world.later(4_000)
    world.engine.attempts.release(top, doer, why="cancel")
    world.later(1_000)
    for session in (lowest, middle.id, top.id):
        assert world.engine.queries.session(session).status == "exited"
        assert world.engine.queries.result(session).exit_reason == "redesign it"


def test_report_of_a_child_whose_parent_is_no_plan_is_in_the_parent_s_inbox(world: World) -> None:
    parent, _, child = begun_by_a_doer(world)
    report = TaskReport(status="completed", pr_url="https://example.org/pr/1", notes="all of it")
    views = [plans.report(world.engine, child.id, report, idempotency_key="one") for _ in "12"]
    view = views[1]
    assert (view.session, view.task, view.status) == (parent.id, "", "completed")
    blocked = TaskReport(status="blocked", notes="needs a key")
    plans.report(world.engine, child.id, blocked)
    inbox = list_messages(world.engine, parent.id).items
    assert [(one.kind, one.sender, one.text, one.escalates) for one in inbox] == [
        ("report", child.id,
         f"session {child.id}: completed (https://example.org/pr/1): all of it", False),
        ("report", child.id, f"session {child.id}: blocked: needs a key", True),
    ]  # fmt: skip
    with pytest.raises(NoPlan):
        plans.report(world.engine, parent.id, report)


def test_guard_inside_a_session_refuses_a_stop_while_its_children_are_at_work(
    world: World,
) -> None:
    parent, _, child = begun_by_a_doer(world)
    inside = Guarded("agent-1", parent.id)
    decision = stop(world, gate("build", "passed"), guarded=inside)
    assert (decision.decision, decision.gate) == ("block", "children")
    assert f"{child.id} (" in decision.text
    # Of another session's agent, or without a session.
    assert stop(world, guarded=Guarded("agent-1")).decision == "allow"
    world.engine.control.apply(child.id, "abort")
    assert stop(world, guarded=inside).template == "complete"


@pytest.mark.parametrize("verb", ["stop", "abort"])
def test_any_other_end_of_what_a_doer_began_is_the_doer_s_to_read(world: World, verb: Any) -> None:
    parent, doer, child = begun_by_a_doer(world)
    world.engine.control.apply(child.id, verb)
    world.later(4_000)
    assert world.engine.attempts.beat(parent, doer).word == "ok"
    assert world.engine.queries.session(parent.id).status == "active"


def test_an_exit_that_comes_after_its_doer_ends_nothing(world: World) -> None:
    parent, doer, child = begun_by_a_doer(world)
    world.settle(parent, doer)
    world.engine.control.apply(child.id, "exit")
    world.later(4_000)
    assert world.engine.queries.session(parent.id).status == "active"


def test_an_exit_of_a_subflow_is_no_exit_of_its_flow(world: World) -> None:
    """Also where it comes before its step has begun to wait for it."""
    after = Step(id="b", action=Action.AGENT)
    kid = PARENT.body[0].model_copy(update={"critical": False})
    id_ = world.engine.submit.program(
        Program(body=(kid, after)), About(kind="loop", name="x")
    ).session
    ref = SessionRef(id_, id_)
    work = world.engine.attempts.work(ref, world.grant(ref, "kid"))
    above: dict[str, JsonValue] = {"session": id_, "address": "kid", "fence": work.grant.fence,
             "base": world.engine.store.keys.base(ref)}  # fmt: skip
    document = LoopDocument.model_validate(DOCUMENT)
    child = world.engine.submit.document(
        document, idempotency_key=f"{id_}:kid", root=id_, parent=above
    ).session
    world.engine.control.apply(child, "exit")
    ended = park(world.engine, work)
    assert ended is not None
    world.settle(ref, work.grant, ended)
    assert world.engine.queries.session(id_).status == "active"


def test_a_question_stands_in_the_transcript_when_it_is_asked(world: World) -> None:
    ask = Step(id="ask", action=Action.HUMAN, timeout_s=60, inputs={"question": "May I?"})
    id_ = world.engine.submit.program(Program(body=(ask,)), About(kind="loop", name="x")).session
    ref = SessionRef(id_, id_)
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "ask"))) is None

    def said() -> list[str]:
        page = world.engine.queries.transcript(id_, limit=10, cursor=None)
        return [entry.text for entry in page.items]

    assert said() == ["May I?"]
    world.later(61_000)
    assert world.engine.queries.session(id_).status == "failed"
    assert said() == ["May I?", "failed: no answer arrived in time"]
