"""Explain, of sessions that wait for each of their possible reasons, and of some that ended."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from typing import Literal

import click
import pytest
from redis import Redis

from app import shared
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome, Usage
from app.core.program import SCHEMA_VERSION, Action, Loop, Program, RetryPolicy, Step
from app.core.states import Control
from app.sessions.submit import About
from leadhand.cli import cli
from leadhand.cli.render.times import with_local_times
from leadhand.cli.show import explanation
from leadhand.models.documents import Budget
from leadhand.models.verdicts import Reason, ReasonCode
from leadhand.models.views.explain import ExplainView, Wait
from leadhand.models.views.explain import ExplainView as Told
from tests.engine.children.test_children import family
from tests.engine.world import LOOP, World

DO = "loop~1[1]/do"
QUEUES = ("agents@here", "checks@here", "tools@here", "agents", "checks", "tools")


class Case:
    """A world with a worker, and hands to bring sessions into every kind of waiting."""

    def __init__(self, url: str) -> None:
        self.world = World(url)
        self.engine = self.world.engine
        self.redis = Redis.from_url(url, decode_responses=True)
        self.tell("here", QUEUES)

    def tell(
        self, place: str, queues: tuple[str, ...], *, worker: str = "", **more: object
    ) -> None:
        told = {"place": place, "queues": queues, "concurrency": 4, "roots": [],
                "schema_version": SCHEMA_VERSION, "seen_ms": self.world.now, **more}  # fmt: skip
        self.engine.store.fleet().publish_inventory(worker or f"at-{place}", json.dumps(told))

    def start(self, *body: Step | Loop) -> SessionRef:
        about = About(kind="loop", name="x", place="here")
        id_ = self.engine.submit.program(Program(body=body), about).session
        return SessionRef(id_, id_)

    def parked(self, action: Literal["human", "wait"], question: str | None = None) -> SessionRef:
        ref = self.start(Step(id="s", action=Action(action)))
        work = self.engine.attempts.work(ref, self.world.grant(ref, "s"))
        self.engine.attempts.park(work, on=action, wait_ms=60_000, question=question)
        return ref


def queue(case: Case) -> SessionRef:
    return case.world.session("/queue")


def all_held(case: Case) -> SessionRef:
    case.tell("here", QUEUES, concurrency=1, worker="w")
    case.world.grant(case.world.session("/one"), DO)
    case.engine.store.fleet().delete_inventory("at-here")
    return case.world.session("/two")


def busy(case: Case) -> SessionRef:
    case.tell("here", QUEUES, load=9.5, cores=2, idle_processes=1)
    return case.world.session("/busy")


def starting(case: Case) -> SessionRef:
    case.tell("here", QUEUES, concurrency=2, worker="w", load=0.5, cores=2, idle_processes=1)
    case.world.grant(case.world.session("/one"), DO)
    case.engine.store.fleet().delete_inventory("at-here")
    return case.world.session("/two")


def no_worker(case: Case) -> SessionRef:
    case.tell("here", ("checks@here",))
    return case.world.session("/no-worker")


def place_gone(case: Case) -> SessionRef:
    ref = case.world.session("/gone")
    case.engine.store.fleet().delete_inventory("at-here")
    case.tell("there", ("agents@there",))
    return ref


def running(case: Case) -> SessionRef:
    ref = case.world.session("/running")
    case.world.grant(ref, DO)
    return ref


def lost(case: Case) -> SessionRef:
    ref = running(case)
    case.world.now += 40_000
    case.tell("here", QUEUES)
    return ref


def lock(case: Case) -> SessionRef:
    case.world.grant(case.world.session("/shared"), DO)
    ref = case.world.session("/shared")
    assert case.world.claim(ref, DO).why == "lock"
    return ref


def limit(case: Case) -> SessionRef:
    shared.set_limit(case.engine, "key:k", concurrency=1)
    case.world.grant(case.world.session("/one"), DO)
    ref = case.world.session("/two")
    assert case.world.claim(ref, DO).why == "lock"
    return ref


def rate(case: Case) -> SessionRef:
    shared.set_limit(case.engine, "key:k", per_minute=1)
    case.world.grant(case.world.session("/one"), DO)
    ref = case.world.session("/two")
    assert case.world.claim(ref, DO).why == "rate"
    return ref


def retry(case: Case) -> SessionRef:
    ref = case.start(Step(id="s", action=Action.AGENT, retry=RetryPolicy(retries=2, backoff_s=9)))
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no such file\nat line 3")
    failed = Outcome(word="failed", reason=reason)
    case.world.settle(ref, case.world.grant(ref, "s"), failed)
    return ref


def timer(case: Case) -> SessionRef:
    return case.parked("wait")


def human(case: Case) -> SessionRef:
    return case.parked("human", "Ship it?")


def child(case: Case) -> SessionRef:
    parent, kid = family(case.world)
    case.world.grant(kid, DO)
    return parent


def window(case: Case) -> SessionRef:
    return case.start(Step(id="s", action=Action.AGENT, for_each=tuple(range(30))))


def schema(case: Case) -> SessionRef:
    ref = case.world.session("/new")
    case.tell("here", QUEUES, schema_version=SCHEMA_VERSION - 1)
    return ref


def stopping(case: Case) -> SessionRef:
    ref = running(case)
    case.engine.control.apply(ref.id, "stop")
    return ref


REASONS: Mapping[Callable[[Case], SessionRef], tuple[str, str]] = {
    queue: ("queue", "messages queued on agents@here; workers: at-here (4 slots); 4 slots free"),
    busy: ("queue", "4 slots free, but the machine is busy (load 9.5 on 2 cores)"),
    starting: ("queue", "1 slot free, and a process for it is starting"),
    all_held: ("queue", "(1 slot), all held by session "),
    no_worker: ("no_worker", "no worker consumes agents@here"),
    place_gone: ("place_gone", "leadhand worker --place here"),
    running: ("running", "attempt 1 by w is running, until "),
    lost: ("lost", "missed its heartbeat; the next sweep reassigns it"),
    lock: ("lock", "folder:here:/shared is held by session "),
    limit: ("lock", "key:k is held by session "),
    rate: ("rate", "a rate limit allows only so many attempts per minute"),
    retry: ("retry", "attempt 1 failed: no such file; the next one starts at "),
    timer: ("timer", "it continues at 1970-01-01T00:17:40.000+00:00"),
    human: ("human", "a person is asked: Ship it?"),
    child: ("child", "is active: it is running"),
    window: ("window", "other steps of its session are before it in agents@here"),
    schema: ("schema", f"needs workers with schema {SCHEMA_VERSION}"),
    stopping: ("running", "attempt 1 by w is running"),
}


@pytest.fixture
def case(store_url: str) -> Case:
    return Case(store_url)


def understood(commands: list[str]) -> None:
    """Each command is one of ours, and reads its arguments."""
    for line in commands:
        word, *arguments = shlex.split(line)
        assert word == "leadhand"
        command = cli.get_command(click.Context(cli), arguments[0])
        assert command is not None, line
        command.make_context(arguments[0], arguments[1:])


def said(view: ExplainView) -> str:
    return "\n".join(explanation(Told.model_validate(view.model_dump())))


@pytest.mark.parametrize("make", REASONS, ids=lambda make: make.__name__)
def test_each_reason_is_told_with_what_to_do(case: Case, make: Callable[[Case], SessionRef]):
    ref = make(case)
    why, text = REASONS[make]
    view = case.engine.explainer.explain(ref.id)
    wait = next(wait for wait in view.waits if wait.why == why)
    assert text in wait.text
    assert with_local_times(text) in said(view)
    assert (wait.session, wait.text.count("None")) == (ref.id, 0)
    assert make is timer or wait.next
    understood(view.next)
    assert set(wait.next) <= set(view.next)


def test_an_attempt_tells_when_it_was_last_heard_of(case: Case):
    ref = case.world.session("/killed")
    grant = case.world.grant(ref, DO)
    case.world.now += 11_000
    (wait,) = case.engine.explainer.explain(ref.id).waits
    assert wait.text.endswith("; last heartbeat 11 s ago; no output yet")
    case.engine.attempts.beat(ref, grant)
    case.world.now += 25_000
    (wait,) = case.engine.explainer.explain(ref.id).waits
    assert (wait.why, wait.text.split("; ")[-2]) == ("running", "last heartbeat 25 s ago")
    case.world.later(6_000)
    again = case.world.grant(ref, DO)
    assert again.attempt == 2
    (wait,) = case.engine.explainer.explain(ref.id).waits
    assert wait.text.endswith("; last heartbeat 0 s ago; no output yet")


def test_a_lock_names_who_holds_it_since_when(case: Case):
    view = case.engine.explainer.explain(lock(case).id)
    (wait,) = view.waits
    (holder,) = wait.holders
    assert f"session {holder} (loop~1) since 1970-01-01T00:16:40" in wait.text
    assert view.next == [f"leadhand explain {holder}"]
    assert view.text.endswith(wait.text)
    assert said(view).splitlines()[2].count("since") == 1, "it does not say so twice"


def test_a_pace_tells_when_the_next_one_begins_and_who_stands_before(case: Case):
    first = rate(case)
    second = case.world.session("/three")
    assert case.world.claim(second, DO).why == "rate"
    (wait,) = case.engine.explainer.explain(first.id).waits
    assert wait.until == "1970-01-01T00:17:40.000+00:00"
    assert wait.text.endswith("; the next one at 1970-01-01T00:17:40.000+00:00")
    (behind,) = case.engine.explainer.explain(second.id).waits
    assert (behind.until, behind.text) == (None, f"{wait.text}; 1 before it in line")
    case.world.now += 60_000
    assert (
        case.engine.explainer.explain(first.id)
        .waits[0]
        .text.endswith("; the next one may start now")
    )


def test_who_waits_for_its_session_s_part_of_a_limited_key_is_told_so(case: Case):
    shared.set_limit(case.engine, "key:k", concurrency=1)
    ref = case.start(
        Step(id="s", action=Action.AGENT, for_each=tuple(range(30)), limits=("key:k",))
    )
    told = {
        wait.text for wait in case.engine.explainer.explain(ref.id).waits if wait.why == "window"
    }
    assert told == {"other steps of its session are before it in key:k"}


def test_a_child_tells_what_it_waits_for_itself(case: Case):
    parent, kid = family(case.world)
    view = case.engine.explainer.explain(parent.id)
    (wait,) = view.waits
    assert [(below.session, below.why) for below in wait.beneath] == [(kid.id, "queue")]
    assert f"leadhand explain {kid.id}" in view.next
    assert [line for line in said(view).splitlines() if line.startswith("  loop~1[1]/do")]


def test_a_person_is_told_how_to_answer(case: Case):
    view = case.engine.explainer.explain(human(case).id)
    assert view.next == [f"leadhand answer {view.session} s TEXT"]
    assert view.waits[0].until == "1970-01-01T00:17:40.000+00:00"


def test_an_explanation_repeats_no_status_and_says_waiting_where_lists_do(case: Case):
    ref = case.parked("human", "May I?")
    id_ = ref.id
    listed = case.engine.queries.session(id_).status
    assert listed == case.engine.explainer.explain(id_).status == "waiting"
    verbs: tuple[Control, ...] = ("stop", "abort")
    for verb in verbs:
        case.engine.control.apply(id_, verb)
        view = case.engine.explainer.explain(id_)
        assert f"is {view.status}" not in view.text


def test_the_reason_of_a_workflow_names_its_phase(case: Case):
    body = (Step(id="do", action=Action.AGENT), Step(id="judge", action=Action.JUDGE))
    loop = Loop(id="p2", label="go green", body=body, max_iterations=1)
    about = About(kind="workflow", name="x")
    id_ = case.engine.submit.program(Program(body=(loop,)), about).session
    ref = SessionRef(id_, id_)
    (judge,) = case.world.settle(ref, case.world.grant(ref, "p2~1[1]/do")).grants
    case.world.settle(ref, judge, Outcome(word="succeeded", verdict="retry"))
    text = "phase 'go green': not accepted within 1 iteration"
    assert case.engine.explainer.explain(id_).text == text


def test_a_move_is_offered_to_places_that_have_workers(case: Case):
    view = case.engine.explainer.explain(place_gone(case).id)
    assert view.next == [f"leadhand rehome {view.session} there"]


def test_an_end_is_told_down_to_its_root_cause(case: Case):
    ref = case.world.session("/failed")
    reason = Reason(code=ReasonCode.FAILED_STEP, text="the disk is full")
    failed = Outcome(word="failed", reason=reason, retryable=False)
    case.world.settle(ref, case.world.grant(ref, DO), failed)
    view = case.engine.explainer.explain(ref.id)
    assert (view.status, view.text) == ("failed", "the disk is full")
    assert [(cause.code, cause.at) for cause in view.causes][-1] == ("failed_step", DO)
    lines = said(view).splitlines()[2:4]
    assert lines[0] == f"why: failed_step at {DO}: {DO} failed"
    assert lines[1] == f"  because failed_step at {DO}: the disk is full"
    assert view.next[0] == f"leadhand resume {ref.id}"
    understood(view.next)
    case.engine.control.apply(ref.id, "resume")


def test_an_end_of_a_child_leads_to_the_childs_own_cause(case: Case):
    parent, kid = family(case.world)
    reason = Reason(code=ReasonCode.FAILED_STEP, text="no network")
    failed = Outcome(word="failed", reason=reason, retryable=False)
    case.world.settle(kid, case.world.grant(kid, DO), failed)
    view = case.engine.explainer.explain(parent.id)
    assert view.status == "failed"
    assert view.causes[-1].text == "no network"
    assert f"leadhand ls --parent {parent.id}" in view.next
    assert any(kid.id in cause.text for cause in view.causes)
    assert f"leadhand explain {kid.id}" in view.next


def test_a_reason_that_reads_like_the_end_of_a_child_names_no_session(case: Case):
    ref = case.world.session("/forged")
    reason = Reason(code=ReasonCode.FAILED_STEP, text="child session 5e551045 is failed")
    failed = Outcome(word="failed", reason=reason, retryable=False)
    case.world.settle(ref, case.world.grant(ref, DO), failed)
    view = case.engine.explainer.explain(ref.id)
    assert view.status == "failed"
    assert not any("5e551045" in command for command in view.next)


def test_a_limit_that_was_reached_is_raised_by_the_command_that_is_told(case: Case):
    ref = case.world.session("/limit")
    for iteration in (1, 2, 3):
        case.world.turn(ref, iteration, "retry")
    view = case.engine.explainer.explain(ref.id)
    assert view.next[0] == f"leadhand resume {ref.id} --max-iterations 6"
    understood(view.next)
    case.engine.control.apply(ref.id, "resume", max_iterations=6)
    assert case.engine.queries.session(ref.id).status == "active"


def test_a_limit_that_an_inner_loop_reached_is_raised_by_the_command_that_is_told(case: Case):
    work = Step(id="do", action=Action.AGENT)
    inner = Loop(id="inner", body=(work,), max_iterations=2)
    ref = case.start(Loop(id="outer", body=(inner,), max_iterations=5))
    for iteration in (1, 2):
        case.world.settle(ref, case.world.grant(ref, f"outer~1[1]/inner~1[{iteration}]/do"))
    view = case.engine.explainer.explain(ref.id)
    assert [cause.code for cause in view.causes][-1] == "max_iterations"
    assert view.next[0] == f"leadhand resume {ref.id} --max-iterations 4"
    case.engine.control.apply(ref.id, "resume", max_iterations=4)
    inner_turn = "outer~2[1]/inner~1"
    assert case.engine.store.turns(ref, [inner_turn])[inner_turn].max == 4


def test_a_limit_of_a_childs_own_loop_is_not_the_parents(case: Case):
    parent, kid = family(case.world)
    for iteration in (1, 2, 3):
        case.world.turn(kid, iteration, "retry", check="check.true")
    assert case.engine.queries.session(kid.id).status == "failed"
    assert case.engine.explainer.explain(parent.id).next[0] == f"leadhand resume {parent.id}"


def test_a_budget_that_was_used_up_is_raised_by_the_command_that_is_told(case: Case):
    about = About(kind="loop", name="x", budget=Budget(tokens=1_000_000))
    body = (Step(id="s", action=Action.AGENT), Step(id="t", action=Action.TOOL))
    id_ = case.engine.submit.program(Program(body=body), about).session
    ref = SessionRef(id_, id_)
    used = Outcome(word="succeeded", usage=Usage(input_tokens=1_000_000))
    case.world.settle(ref, case.world.grant(ref, "s"), used)
    assert f"leadhand resume {id_} --max-tokens 2000000" in case.engine.explainer.explain(id_).next


@pytest.mark.parametrize(
    ("limit", "code"), [("stage_stops", "circuit_open"), ("stops", "stop_limit")]
)
def test_an_open_circuit_is_closed_by_the_command_that_is_told(case: Case, limit: str, code: str):
    about = About(kind="loop", name="x", budget=Budget.model_validate({limit: 1}))
    id_ = case.engine.submit.program(LOOP, about).session
    for iteration in (1, 2, 3):
        case.world.turn(SessionRef(id_, id_), iteration, "retry")
    view = case.engine.explainer.explain(id_)
    assert [cause.code for cause in view.causes] == [code, "max_iterations"]
    assert view.next[0] == f"leadhand resume {id_} --max-{limit.replace('_', '-')} 2"
    understood(view.next)
    case.engine.control.apply(id_, "resume", budget=Budget.model_validate({limit: 2}))
    assert case.engine.queries.session(id_).status == "active"


def test_a_session_that_was_stopped_with_its_time_over_is_told_how_to_go_on(case: Case):
    about = About(kind="loop", name="x", budget=Budget(wall_s=3))
    body = (Step(id="s", action=Action.AGENT),)
    id_ = case.engine.submit.program(Program(body=body), about).session
    case.world.now += 3_000
    case.engine.control.apply(id_, "stop")
    assert f"leadhand resume {id_} --max-wall 6" in case.engine.explainer.explain(id_).next


@pytest.mark.parametrize("verb", ["stop", "abort"])
def test_what_was_ended_from_outside_says_so(case: Case, verb):
    ref = case.world.session("/ended")
    case.engine.control.apply(ref.id, verb, reason="enough")
    view = case.engine.explainer.explain(ref.id)
    assert view.waits == []
    assert view.next == [f"leadhand {'resume' if verb == 'stop' else 'show'} {ref.id}"]
    assert view.causes[-1].text == "enough"
    understood(view.next)


def test_a_wait_is_one_of_the_words_that_the_view_names():
    told = {why for why, _ in REASONS.values()}
    assert told <= {"running", "lost", "queue", "window", "no_worker", "place_gone", "lock", "rate",
                    "retry", "timer", "human", "child", "schema"}  # fmt: skip
    assert Wait(why="queue", text="x").beneath == []


def test_a_program_that_a_newer_version_wrote_is_said_to_be_one(case: Case) -> None:
    ref = case.world.session("/newer")
    name = case.engine.store.keys.program(LOOP.hash)
    written = json.loads(str(case.redis.hget(name, "document")))
    case.redis.hset(name, "document", json.dumps({**written, "novel": 1}))
    (wait,) = case.world.at("here").engine.explainer.explain(ref.id).waits
    assert wait.why == "schema"
    assert "newer version" in wait.text
