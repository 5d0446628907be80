"""A session resumed from an earlier point does what it would have done from there, and no more.

Nested loops with breaks, continues and decisions are stopped at each of their steps and sent back
to each step that they had done; what runs then is compared with the interpreter, and what each step
is given with what it was given in a run that was never stopped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import settings
from pydantic import JsonValue

from api import create_app
from app.domain.addresses import block_of, path_of
from app.domain.ids import SessionRef
from app.domain.outcomes import Outcome, Thread
from app.domain.program import Action, Given, Loop, OnFail, Program, Step, transitive_needs
from app.errors import ControlRefused, PositionRefused
from app.history.snapshot import Snapshot
from app.operations.submit import About
from app.resume.plan import Rewind, rewind_to
from app.settings import Settings
from leadhand.models.documents import Budget
from tests.engine.driving import Bench, loop, program, step
from tests.engine.world import World
from tests.model.interpreter import Run, Said
from tests.model.random_programs import random_program
from tests.model.test_whole_programs import Oracle, Schedule, settled

Says = Callable[[str, Step], Said]


def plain(address: str) -> str:
    """Without runs: what is the same however often it is run.

    >>> plain("l~2[1]/a~3")
    'l[1]/a'
    """
    return re.sub(r"~\d+", "", address)


def says(seed: int) -> Says:
    """What each step says, the same at the same place of each run."""

    def say(address: str, step: Step) -> Said:
        random = Random(f"{seed} {plain(address)}")
        match step.action:
            case Action.BREAK:
                return Said("succeeded", random.choice(("accept", "retry", "retry")))
            case Action.DECIDE:
                return Said("succeeded", random.choice(("accept", "retry")))
            case _:
                return Said("succeeded")

    return say


def nested(random: Random, depth: int = 0) -> tuple[Step | Loop, ...]:
    """A block of a sequence, with loops in it, whose steps look at all that is in sight."""
    body: list[Step | Loop] = []
    for name in "abcd"[: random.randint(2, 4)]:
        kind = random.choice(("step", "step", "loop", "decide", "given", "break", "continue"))
        deciders = [n.id for n in body if isinstance(n, Step) and n.action is Action.DECIDE]
        node: Step | Loop
        if kind == "loop" and depth < 2:
            turns, on_fail = random.randint(1, 3), random.choice((OnFail.STOP, OnFail.CONTINUE))
            inner = nested(random, depth + 1)
            node = Loop(id=name, body=inner, max_iterations=turns, on_fail=on_fail, result="a")
        elif kind == "decide":
            node = step(name, "decide", inputs=_looking(body, depth))
        elif kind in ("break", "continue") and depth > 0:
            ends = "iteration" if kind == "continue" else "loop"
            node = step(name, "break", ends=ends, inputs=_looking(body, depth))
        else:
            aside = Random(hash(random.getstate()[1]))
            talk = aside.choice((None, "agent|one", "agent|other"))
            node = step(name, inputs=_looking(body, depth), conversation=talk)
        if kind == "given" and deciders:
            said = Given(node=random.choice(deciders), verdict="accept")
            node = node.model_copy(update={"given": said})
        body.append(node)
    if depth > 0 and body[0].given is None and isinstance(body[0], Loop):
        body.insert(0, step("z", inputs=_looking((), depth)))
    return tuple(body)


def _looking(body: Sequence[Step | Loop], depth: int) -> dict[str, JsonValue]:
    inputs: dict[str, JsonValue] = {node.id: "${" + node.id + "}" for node in body}
    if depth > 0:
        inputs |= {
            "before": "${previous.a.text}",
            "long": "${history.a}",
            "turn": "${turn.iteration}",
        }
    return inputs


def _spoken(step: Step, place: str) -> Thread | None:
    """Where its conversation goes on; some places forget it."""
    if step.conversation is None:
        return None
    forgets = Random(place).random() < 0.2
    return Thread(conversation=step.conversation, id=None if forgets else place)


class Session:
    """One session of a sequence, carried out a step at a time."""

    def __init__(
        self, world: World, program: Program, say: Says, budget: Budget | None = None
    ) -> None:
        self.world, self.program, self.say = world, program, say
        id_ = world.engine.submit.program(
            program, About(kind="flow", name="x", budget=budget or Budget())
        ).session
        self.ref = SessionRef(id_, id_)
        self.did: list[str] = []
        self.given: dict[str, Any] = {}
        self.threads: dict[str, str | None] = {}

    @property
    def status(self) -> str:
        return self.world.engine.queries.session(self.ref.id).status

    def go(self, steps: int = 1000) -> list[str]:
        """Carry out so many steps, as far as there are; what was done, without runs."""
        done: list[str] = []
        while len(done) < steps and (ready := self._ready()):
            grant = self.world.grant(self.ref, ready)
            work = self.world.engine.attempts.work(self.ref, grant)
            told = self.say(ready, work.step)
            self.given[plain(ready)] = work.inputs
            self.threads[plain(ready)] = grant.thread.id if grant.thread else None
            outcome = Outcome(
                word=told.word,  # type: ignore[arg-type]
                verdict=told.verdict,  # type: ignore[arg-type]
                text=plain(ready),
                thread=_spoken(work.step, plain(ready)),
            )
            self.world.engine.attempts.settle(work, outcome, take=[], worker="w")
            done.append(plain(ready))
            self.did.append(ready)
        return done

    def _ready(self) -> str | None:
        live = self.world.engine.store.members(self.ref, "live")
        assert len(live) <= 1, "a sequence has one step at a time"
        return next(iter(live), None) if self.status == "active" else None

    def resume(self, after: str) -> None:
        self.world.engine.control.apply(self.ref.id, "resume", after=after)


def resumed(session: Session, after: str) -> bool:
    """Send it back; a node that has run again since is no point any more."""
    try:
        session.resume(after)
    except PositionRefused as refused:
        if "has run again" not in refused.hint:
            raise
        return False
    return True


def sent_back(world: World, seed: int, pairs: int) -> int:
    """Stop a program at some of its steps, and send it back to some that it had done."""
    random = Random(seed)
    tree = Program(body=nested(random))
    say = says(seed)
    expected = Run(tree, say)
    whole = Session(world, tree, say)
    assert whole.go() == [plain(address) for address in expected.order]
    assert whole.status == expected.status
    order = [plain(address) for address in expected.order]
    tried = 0
    for _ in range(pairs if len(order) > 1 else 0):
        session = Session(world, tree, say)
        stop = random.randint(1, len(order) - (expected.status == "completed"))
        session.go(stop)
        for _ in range(random.choice((1, 1, 2))):  # and sent back once more from there
            if session.status == "active":
                world.engine.control.apply(session.ref.id, "stop")
            if session.status not in ("stopped", "failed"):
                break
            after = random.choice(session.did)
            place = order.index(plain(after))
            if not resumed(session, after):
                continue
            more = session.go(random.choice((1, 2, 1000)))
            rest = order[place + 1 :]
            assert more == rest[: len(more)], (seed, stop, after)
            tried += 1
        if session.status == "active":
            session.go()
        if session.status == "stopped":
            continue
        assert session.status == expected.status, (seed, stop)
        assert plain(session.did[-1]) == order[-1]
        assert session.given == whole.given, (seed, stop)
        assert session.threads == whole.threads, (seed, stop)
    return tried


@pytest.mark.timeout(1200)
def test_what_comes_after_a_point_runs_again_and_nothing_else(bench: Bench) -> None:
    world = World.of(bench)
    thorough = settings.get_current_profile_name() == "thorough"
    count = 500 if thorough else 20
    assert sum(sent_back(world, seed, pairs=3) for seed in range(count)) > 1.5 * count


ASK = step("ask", "agent")


def scenario() -> Program:
    """The nested loops of the flows: the outer broken on its second answer, the inner in each."""
    inner = loop("inner", step("q"), step("leave", "break"), step("r"), turns=5)
    return program(
        step("first"),
        loop("outer", step("x"), inner, step("y"), step("enough", "break"), turns=5),
        step("last"),
    )


def answers(address: str, step: Step) -> Said:
    where = plain(address)
    accepted = where.endswith("inner[2]/leave") or where == "outer[2]/enough"
    verdict = "accept" if accepted else "retry"
    return Said("succeeded", verdict if step.action is Action.BREAK else None)


@pytest.mark.timeout(1200)
def test_the_nested_loops_can_be_stopped_anywhere_and_sent_back_to_anything(bench: Bench) -> None:
    world = World.of(bench)
    order = [plain(address) for address in Run(scenario(), answers).order]
    assert len(order) == 18
    for stop in range(1, len(order)):
        every = 1 if settings.get_current_profile_name() == "thorough" else 3
        for back in range(stop % every, stop, every):
            session = Session(world, scenario(), answers)
            session.go(stop)
            world.engine.control.apply(session.ref.id, "stop")
            session.resume(session.did[back])
            assert session.go() == order[back + 1 :], (stop, back)
            assert session.status == "completed"


def stopped(world: World, steps: int, tree: Program | None = None) -> Session:
    session = Session(world, tree or scenario(), answers)
    session.go(steps)
    world.engine.control.apply(session.ref.id, "stop")
    return session


def test_going_on_where_it_stands_is_a_plain_resume(bench: Bench) -> None:
    session = stopped(World.of(bench), 5)
    session.resume(session.did[-1])
    session.go()
    assert not [address for address in session.did if "~2" in address]


def test_iterations_keep_their_numbers_and_the_limit_counts_on(bench: Bench) -> None:
    world = World.of(bench)
    tree = program(loop("l", step("a"), step("b"), turns=3))
    session = Session(world, tree, answers)
    session.go()
    assert session.status == "failed"
    session.resume("l[2]/a")
    assert session.go() == ["l[2]/b", "l[3]/a", "l[3]/b"]
    assert session.did[-3:] == ["l~2[2]/b", "l~2[3]/a", "l~2[3]/b"]
    assert session.status == "failed"
    session.resume("l[3]/b")
    assert (session.go(), session.status) == ([], "failed")
    world.engine.control.apply(session.ref.id, "resume", after="l[3]/b", max_iterations=4)
    assert session.go() == ["l[4]/a", "l[4]/b"]


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("first", "first"),
        ("0", "first"),
        ("outer[1]/inner[2]/leave", "outer~1[1]/inner~1[2]/leave"),
        ("1[1]/1[2]/1", "outer~1[1]/inner~1[2]/leave"),
        ("1[1].1[2].1", "outer~1[1]/inner~1[2]/leave"),
        ("1/1/0", "outer~1[1]/inner~1[2]/q"),
        ("x", "outer~1[2]/x"),
        ("The way out", "outer~1[1]/enough"),
        ("outer[1]/The way out", "outer~1[1]/enough"),
        ("全部[1]/inner[2]/leave", "outer~1[1]/inner~1[2]/leave"),
    ],
)
def test_a_point_can_be_named_in_several_ways(bench: Bench, said: str, address: str) -> None:
    world = World.of(bench)
    outer = scenario().body[1]
    assert isinstance(outer, Loop)
    named = outer.body[3].model_copy(update={"label": "The way out"})
    tree = program(
        scenario().body[0],
        outer.model_copy(update={"body": (*outer.body[:3], named), "label": "全部"}),
        step("last"),
    )
    session, other = stopped(world, 10, tree), stopped(world, 10, tree)
    session.resume(said)
    other.resume(address)
    assert session.go() == other.go()


@pytest.mark.parametrize(
    ("said", "hint"),
    [
        (
            "nowhere",
            "such as 1[2]/0; there are: first, outer, x, inner, q, leave, r, y, enough, last",
        ),
        ("7", "counted from 0 to 2"),
        ("1[1]/9", "counted from 0 to 3"),
        ("0/0", "'0' is a step; only loops contain nodes"),
        ("outer[3]/x", "has had iterations 1 to 1, counted from 1, and no [3]"),
        ("outer[0]/x", "has had iterations 1 to 1, counted from 1, and no [0]"),
        ("outer[1]/z", "there is no 'z' here; there are: x, inner, y, enough"),
        ("outer[1]", "is an iteration; name the last node of it"),
        ("last", "'last' is not done there"),
        ("outer", "'outer' is not done there"),
        ("outer[1]/y", "'y' is not done there"),
        ("outer[1]/inner[1]/q#1", "cannot resume from an item of a for_each"),
        ("a b", "the program has no such node"),
        ("outer[1]/x[1]/y", "'x[1]' is a step; only loops"),
    ],
)
def test_a_point_where_it_never_was_is_refused(bench: Bench, said: str, hint: str) -> None:
    session = stopped(World.of(bench), 4)
    with pytest.raises(PositionRefused) as refused:
        session.resume(said)
    assert (refused.value.field, refused.value.value) == ("after", said)
    assert hint in refused.value.hint
    assert session.status == "stopped"


def test_a_loop_that_was_never_entered_is_no_point(bench: Bench) -> None:
    session = stopped(World.of(bench), 1, program(step("a"), step("b"), loop("l", step("c"))))
    with pytest.raises(PositionRefused, match="was never entered"):
        session.resume("l/c")


def test_two_nodes_of_one_label_are_told_apart_by_their_paths(bench: Bench) -> None:
    tree = program(step("a", label="Ask"), step("b", label="Ask"), step("c"))
    session = stopped(World.of(bench), 2, tree)
    with pytest.raises(PositionRefused, match="several nodes have this name: a, b"):
        session.resume("Ask")
    session.resume("a")
    assert session.go() == ["b", "c"]


def test_a_session_that_runs_or_has_completed_is_not_sent_back(bench: Bench) -> None:
    session = Session(World.of(bench), program(step("a"), step("b")), answers)
    session.go(1)
    with pytest.raises(ControlRefused):
        session.resume("a")
    session.go()
    with pytest.raises(ControlRefused):
        session.resume("a")


def test_what_was_undone_by_going_back_is_no_point_any_more(bench: Bench) -> None:
    world = World.of(bench)
    tree = program(step("a"), step("b"), step("c"), loop("l", step("x"), step("y"), turns=2))
    session = stopped(world, 4, tree)
    session.resume("a")
    session.go(1)
    world.engine.control.apply(session.ref.id, "stop")
    with pytest.raises(PositionRefused, match=r"'l' has run again since 'l~1', or is about to"):
        session.resume("l~1[1]/x")
    world.engine.control.apply(session.ref.id, "resume")
    assert session.go() == ["c", "l[1]/x", "l[1]/y", "l[2]/x", "l[2]/y"]


def test_what_stands_beside_the_point_goes_on_where_it_is(bench: Bench) -> None:
    world = World.of(bench)
    tree = program(step("a"), step("b"), step("beside", needs=()), step("z", needs=("b", "beside")))
    id_ = world.engine.submit.program(tree, About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    for address in ("a", "b"):
        world.settle(ref, world.grant(ref, address))
    world.engine.control.apply(id_, "stop")
    world.engine.control.apply(id_, "resume", after="a")
    assert set(world.engine.store.members(ref, "live")) == {"b~2", "beside"}
    for address in ("b~2", "beside", "z"):
        world.settle(ref, world.grant(ref, address))
    assert world.engine.queries.session(id_).status == "completed"


def test_what_was_decided_before_the_point_is_still_decided(bench: Bench) -> None:
    said = Given(node="ask", verdict="accept")
    yes = step("yes").model_copy(update={"given": said})
    tree = program(loop("l", step("ask", "decide"), step("pause"), yes, step("tail"), turns=1))

    def say(address: str, step: Step) -> Said:
        return Said("succeeded", "accept" if step.action is Action.DECIDE else None)

    session = Session(World.of(bench), tree, say)
    session.go(3)
    session.world.engine.control.apply(session.ref.id, "stop")
    session.resume("pause")
    assert session.go() == ["l[1]/yes", "l[1]/tail"]


def test_what_runs_anew_meets_what_does_not_in_a_join_of_its_own(bench: Bench) -> None:
    world = World.of(bench)
    aside, both = step("c", needs=("a",)), step("z", needs=("b", "c"))
    tree = program(step("a"), step("p"), step("b"), aside, both, step("tail"))
    id_ = world.engine.submit.program(tree, About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    for address in ("a", "p", "b", "c", "z"):
        world.settle(ref, world.grant(ref, address))
    world.engine.control.apply(id_, "stop")
    world.engine.control.apply(id_, "resume", after="p")
    for address in ("b~2", "z~2"):
        world.settle(ref, world.grant(ref, address))
    assert len(world.engine.store.members(ref, "live")) == 1


def test_a_list_that_was_made_before_the_point_is_worked_on_again(bench: Bench) -> None:
    world = World.of(bench)
    each = step("each", for_each="${list.items}", inputs={"it": "${item}"})
    tree = program(
        loop(
            "l",
            step("list"),
            step("pause"),
            each.model_copy(update={"needs": ("list", "pause")}),
            turns=1,
        )
    )
    id_ = world.engine.submit.program(tree, About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    items = Outcome(word="succeeded", value={"items": ["p", "q"]})
    world.settle(ref, world.grant(ref, "l~1[1]/list"), items)
    world.settle(ref, world.grant(ref, "l~1[1]/pause"))
    world.settle(ref, world.grant(ref, "l~1[1]/each~1#1"))
    world.engine.control.apply(id_, "stop")
    world.engine.control.apply(id_, "resume", after="l/pause")
    live = ["l~2[1]/each~1#1", "l~2[1]/each~1#2"]
    assert sorted(world.engine.store.members(ref, "live")) == live
    given = [world.engine.attempts.work(ref, world.grant(ref, address)).inputs for address in live]
    assert given == [{"it": "p"}, {"it": "q"}]


def test_a_point_can_be_named_over_rest(bench: Bench) -> None:
    session = stopped(World.of(bench), 4)
    engine = session.world.engine
    client = create_app(Settings(secret="s", api_token="t"), engine).test_client()
    path = f"/v1/sessions/{session.ref.id}/resume"
    headers = {"Authorization": "Bearer t"}
    refused = client.post(path, json={"after": "outer[7]/x"}, headers=headers)
    assert refused.status_code == 422
    told = refused.get_json()["errors"][0]
    assert (told["field"], told["value"]) == ("after", '"outer[7]/x"')
    assert "no [7]" in told["hint"]
    assert client.post(path, json={"after": "first"}, headers=headers).status_code == 202
    assert session.go() == [plain(address) for address in Run(scenario(), answers).order][1:]


def test_a_turn_whose_child_stopped_with_the_session_closes_at_its_resume(bench: Bench) -> None:
    world = World.of(bench)
    body = (step("kid", "human", needs=()), step("stop", "break", needs=()))
    tree = program(loop("l", *body), step("after"), step("beside", needs=()))
    ref = Session(world, tree, answers).ref
    redis, keys = world.engine.store._redis, world.engine.store.keys
    status = keys.part(SessionRef("bbbbbbbb", ref.root), "session")
    redis.hset(status, "status", "active")
    redis.sadd(keys.part(ref, "children"), "bbbbbbbb")
    redis.zadd(keys.part(ref, "born"), {"l~1[1]/kid<bbbbbbbb": 0})
    beside = world.grant(ref, "beside")
    broken = Outcome(word="succeeded", verdict="accept")
    world.settle(ref, world.grant(ref, "l~1[1]/stop"), broken)
    world.engine.control.apply(ref.id, "stop")
    redis.hset(status, "status", "stopped")
    world.engine.attempts.release(ref, beside, why="stop")
    assert world.engine.queries.session(ref.id).status == "stopped"
    redis.hset(status, "status", "aborted")
    world.engine.control.apply(ref.id, "resume")
    assert set(world.engine.store.members(ref, "live")) == {"after", "beside"}


class PlainOracle(Oracle):
    """It says the same in each run of a node."""

    def __call__(self, address: str, step: Step) -> Said:
        return super().__call__(plain(address), step)

    def failures(self, address: str, step: Step) -> int:
        return super().failures(plain(address), step)


class Rewinding(Schedule):
    """A schedule in which a stopped session is sent back, now and then."""

    def __init__(self, bench: Bench, program: Program, oracle: Oracle, seed: int) -> None:
        super().__init__(bench, program, oracle, seed, stops=4)
        self.sent_back = 0
        self._seen: set[str] = set()
        self._done: set[str] = set()

    def go_on(self) -> None:
        self.check()
        if self.drive.status != "stopped":
            return  # what was settled meanwhile has ended it
        records = self.drive.records("steps")
        done = sorted(a for a, r in records.items() if r["state"] == "succeeded" and "#" not in a)
        found = self._rewind(self.random.choice(done)) if done and self.sent_back < 4 else None
        if found is None:
            self.drive.control("resume")
            return
        self.sent_back += 1
        self._seen = set(records)
        answer = self.drive.control("resume", adopts=None, **found.arguments())
        assert answer.word == "done"

    def _rewind(self, address: str) -> Rewind | None:
        known = Snapshot(self.bench.store, self.drive.ref)
        try:
            found = rewind_to(self.program, address, known, failed=False)
        except PositionRefused:
            return None
        block, name = block_of(address), plain(address).rpartition("/")[2]
        body = self.program.node(path_of(block)).body if block else self.program.body  # type: ignore[union-attr]
        names = {name, *transitive_needs(body)[name]}
        self._done = {f"{plain(block)}/{n}" if block else n for n in names} if found else set()
        return found

    def check(self) -> None:
        """Nothing that counted as done has run again."""
        again = {plain(a) for a in self.drive.records("steps") if a not in self._seen}
        assert not again & self._done
        self._done = set()


@pytest.mark.timeout(1200)
def test_graphs_that_are_sent_back_under_any_schedule_end_the_same(bench: Bench) -> None:
    thorough = settings.get_current_profile_name() == "thorough"
    count, times = 1000 if thorough else 15, 0
    for seed in range(count):
        tree = settled(random_program(Random(seed).choice))
        oracle = PlainOracle(seed)
        expected = Run(tree, oracle)
        schedule = Rewinding(bench, tree, oracle, seed)
        schedule.run()
        schedule.check()
        times += schedule.sent_back
        outcomes = {plain(address): came for address, came in expected.steps.items()}
        found = {
            plain(a): (r["state"], r.get("verdict"))
            for a, r in schedule.drive.records("steps").items()
            if r["state"] != "cancelled"
        }
        assert found == outcomes, seed
        assert schedule.drive.status == expected.status, seed
    assert times > count // 2
