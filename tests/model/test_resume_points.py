"""Resume points by hand: how one is named, which ones are refused, and which steps run again."""

from __future__ import annotations

import pytest
from hypothesis import settings

from api import create_app
from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Given, Loop, Program, Step
from app.errors import PositionRefused
from app.sessions.submit import About
from app.settings import Settings
from leadhand.errors import ControlRefused
from tests.engine.driving import Bench, loop, program, step
from tests.engine.world import World
from tests.model.interpreter import Run, Said
from tests.model.sequences import Session, plain

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
        every = 1 if settings.get_current_profile_name() == "thorough" else 8
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


def test_resume_after_the_newest_step_is_a_plain_resume(bench: Bench) -> None:
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


def test_nodes_with_the_same_label_are_distinguished_by_path(bench: Bench) -> None:
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


def test_steps_undone_by_a_resume_are_no_resume_points(bench: Bench) -> None:
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


def test_nodes_parallel_to_the_resume_point_continue(bench: Bench) -> None:
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
    for route in ("resume", "fork"):
        null = client.post(path.replace("resume", route), json={"after": None}, headers=headers)
        assert null.status_code == 422
        assert null.get_json()["errors"][0]["field"] == "after"
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
