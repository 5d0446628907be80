"""A turn that ends early waits for the child sessions below it, as it waits for what runs."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Loop
from app.sessions.submit import About
from tests.engine.children.test_children import DOCUMENT
from tests.engine.driving import Bench, Drive, loop, program, step
from tests.engine.world import World
from workers.attempt.settle import park

KID = program(step("work"))


def with_child(*beside: Any) -> Loop:
    body = (step("stop", "break", needs=()), step("kid", "child", needs=()), *beside)
    return loop("l", *body, on_fail="continue")


def start_child(drive: Drive, address: str, *, name: str = "bbbbbbbb") -> Drive:
    grant = drive.take(address)
    base = drive.bench.store.keys.base
    child = Drive(drive.bench, drive.ref._replace(id=name), KID)
    parent = {"base": base(drive.ref), "address": address, "fence": grant.fence}
    assert child.create(parent=parent, nonce=name).word == "created"
    drive.park(grant, "child", child=name, child_base=base(child.ref))
    return child


def test_a_loop_that_breaks_releases_nothing_while_a_child_below_it_works(bench: Bench):
    drive = bench.start(program(with_child(), step("after")))
    child = start_child(drive, "l~1[1]/kid")
    answer = drive.do("l~1[1]/stop", verdict="accept")
    assert set(answer.abort) == {"bbbbbbbb"}
    assert "abort|bbbbbbbb|aaaaaaaa|" in bench.scores("errands")
    assert (drive.turn("l~1")["state"], drive.live) == ("closing", set())
    working = child.take("work")
    child.control("abort")
    assert child.status == "aborting"
    drive.poke("l~1[1]/kid")
    assert drive.turn("l~1")["state"] == "closing", "its process still runs"
    child.release(working)
    drive.poke("l~1[1]/kid")
    assert (drive.turn("l~1")["state"], drive.live) == ("closed", {"after"})
    drive.do("after")
    drive.ended_well()


def test_a_child_that_is_born_while_its_loop_ends_ends_with_it(bench: Bench):
    drive = bench.start(program(with_child(), step("after")))
    grant = drive.take("l~1[1]/kid")
    drive.do("l~1[1]/stop", verdict="accept")
    child = Drive(bench, drive.ref._replace(id="bbbbbbbb"), KID)
    base = bench.store.keys.base
    parent = {"base": base(drive.ref), "address": grant.address, "fence": grant.fence}
    assert child.create(parent=parent, nonce="b").word == "created"
    late = drive.park(grant, "child", child="bbbbbbbb", child_base=base(child.ref))
    assert (late.word, set(late.abort)) == ("superseded", {"bbbbbbbb"})
    assert drive.turn("l~1")["state"] == "closing"
    child.control("abort")
    drive.poke("l~1[1]/kid")
    assert drive.live == {"after"}


def test_a_child_of_another_iteration_or_loop_is_not_waited_for(bench: Bench):
    beside = loop("l-2", step("kid", "child"), step("j", "judge"), needs=())
    drive = bench.start(program(with_child(), beside, step("after", needs=("l",))))
    start_child(drive, "l-2~1[1]/kid")
    drive.do("l~1[1]/stop", verdict="accept")
    assert drive.turn("l~1")["state"] == "closed"
    assert drive.live == {"l-2~1[1]/kid", "after"}


def test_an_item_that_fails_waits_for_the_children_of_the_others(bench: Bench):
    each = step("each", "child", for_each=(1, 2), needs=())
    drive = bench.start(program(loop("l", each, on_fail="continue", turns=1), step("after")))
    child = start_child(drive, "l~1[1]/each~1#1")
    drive.do("l~1[1]/each~1#2", "failed", retryable=False)
    assert drive.turn("l~1[1]/each~1")["state"] == "closing"
    assert drive.turn("l~1")["state"] == "open"
    child.control("abort")
    drive.poke("l~1[1]/each~1#1")
    assert drive.turn("l~1")["verdict"] == "terminate"
    assert drive.live == {"after"}


@pytest.mark.parametrize("above", ["o~1", "l~1"])
def test_the_innermost_child_holds_every_turn_around_it(bench: Bench, above: str):
    inner = loop("l", step("kid", "child", needs=()), step("stop", "break", needs=()))
    drive = bench.start(
        program(loop("o", inner, step("end", "break", needs=()), on_fail="continue"), step("after"))
    )
    child = start_child(drive, "o~1[1]/l~1[1]/kid")
    ends = "o~1[1]/end" if above == "o~1" else "o~1[1]/l~1[1]/stop"
    drive.do(ends, verdict="accept")
    closing = "o~1" if above == "o~1" else "o~1[1]/l~1"
    assert drive.turn(closing)["state"] == "closing"
    child.control("abort")
    drive.poke("o~1[1]/l~1[1]/kid")
    assert drive.turn(closing)["state"] == "closed"


def test_a_folder_is_free_only_when_the_children_of_its_loop_have_ended(bench: Bench):
    do = step("do", "agent", needs=(), folder=True)
    drive = bench.start(program(with_child(do), step("after")))
    bench.redis.hset(drive.key("session"), "folder", "folder:here:/f")
    drive.do("l~1[1]/do")
    child = start_child(drive, "l~1[1]/kid")
    drive.do("l~1[1]/stop", verdict="accept")
    holds = bench.store.keys.everywhere("holds")
    assert bench.redis.zcard(holds) == 1
    child.control("abort")
    drive.poke("l~1[1]/kid")
    assert bench.redis.zcard(holds) == 0


def test_a_break_ends_the_children_below_it_before_the_next_step(store_url: str):
    world = World(store_url)
    kid = step("kid", "child", needs=(), inputs={"document": DOCUMENT})
    body = (kid, step("stop", "break", needs=()))
    id_ = world.engine.submit.program(
        program(loop("l", *body), step("after")), About(kind="flow", name="x")
    ).session
    ref = SessionRef(id_, id_)
    park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "l~1[1]/kid")))
    (name,) = world.engine.store.children(ref)
    child = SessionRef(name, id_)
    working = world.grant(child, "loop~1[1]/do")
    broken = Outcome(word="succeeded", verdict="accept")
    world.settle(ref, world.grant(ref, "l~1[1]/stop"), broken)
    assert world.engine.queries.session(child.id).status == "aborting"
    assert (ref, "after") not in world.hints
    world.engine.attempts.release(child, working, why="cancel")
    assert world.engine.queries.session(child.id).status == "aborted"
    assert (ref, "after") in world.hints


def test_a_stop_that_comes_before_a_child_is_born_fails_nobody(bench: Bench):
    """The step that was about to start its child is handed back, and starts it when resumed."""
    world = World.of(bench)
    kids = [step(name, "child", needs=(), inputs={"document": DOCUMENT}) for name in "ab"]
    id_ = world.engine.submit.program(program(*kids), About(kind="flow", name="x")).session
    ref = SessionRef(id_, id_)
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "a"))) is None
    late = world.engine.attempts.work(ref, world.grant(ref, "b"))
    world.engine.control.apply(id_, "stop")
    assert park(world.engine, late) is None
    world.later(1_000)
    assert world.engine.queries.session(id_).status == "stopped"
    (born,) = world.engine.store.children(ref)
    assert world.engine.queries.session(born).status == "stopped"
    world.engine.control.apply(id_, "resume")
    world.later(1_000)
    assert park(world.engine, world.engine.attempts.work(ref, world.grant(ref, "b"))) is None
    for child in world.engine.store.children(ref):
        world.turn(SessionRef(child, id_), 1, "accept", check="check.true")
    assert world.engine.queries.session(id_).status == "completed"
