"""Locks and sessions that move: another name of a folder, another place."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.program import Action, Loop, Program, Step
from app.errors import InvalidDocument
from app.sessions.submit import About
from tests.engine.driving import Bench
from tests.engine.world import World


def test_a_session_moves_to_another_place_with_what_waits(world: World) -> None:
    ref = world.session(place="gone")
    assert world.claim(ref, "loop~1[1]/do").why == "place"
    with pytest.raises(InvalidDocument, match="no worker is at this place"):
        world.engine.control.rehome(ref.id, "here")
    world.worker("here", "/elsewhere")
    with pytest.raises(InvalidDocument, match="beneath /elsewhere"):
        world.engine.control.rehome(ref.id, "here")
    world.worker("here", "/f")
    world.hints.clear()
    world.engine.control.rehome(ref.id, "here")
    assert (ref, "loop~1[1]/do") in world.hints
    world.turn(ref, 1, "accept")
    assert world.engine.queries.session(ref.id).status == "completed"


def moved(world: World, ref: SessionRef, real: str) -> str:
    """The reply to a worker that found the real path of the doer's folder."""
    work = world.engine.attempts.work(ref, world.grant(ref, "loop~1[1]/do"))
    return world.engine.attempts.move_lock(work, Path(real)).word


def test_two_names_of_one_folder_are_one_lock_once_its_place_has_looked(world: World) -> None:
    by_name, by_link = world.session("/f"), world.session("/link")
    held = world.grant(by_name, "loop~1[1]/do")
    assert moved(world, by_link, "/f") == "released"
    refused = world.claim(by_link, "loop~1[1]/do")
    assert (refused.why, refused.lock) == ("lock", "folder:here:/f")
    world.settle(by_name, held)
    world.hints.clear()
    world.engine.control.apply(by_name.id, "abort")
    assert (by_link, "loop~1[1]/do") in world.hints
    work = world.engine.attempts.work(by_link, world.grant(by_link, "loop~1[1]/do"))
    assert work.grant.attempt == 1  # the look did not count
    third = world.session("/link")
    assert moved(world, third, "/f") == "released"
    assert world.claim(third, "loop~1[1]/do").why == "lock"


def test_whoever_gave_up_the_wrong_lock_calls_those_who_wait_for_it(world: World) -> None:
    by_link, other = world.session("/link"), world.session("/link")
    work = world.engine.attempts.work(by_link, world.grant(by_link, "loop~1[1]/do"))
    assert world.claim(other, "loop~1[1]/do").why == "lock"
    world.hints.clear()
    world.engine.attempts.move_lock(work, Path("/f"))
    assert (other, "loop~1[1]/do") in world.hints
    assert moved(world, other, "/elsewhere") == "released"  # the link now has another target


def test_a_session_s_lock_is_moved_once_so_that_hosts_that_disagree_get_on(world: World) -> None:
    ref = world.session("/link")
    assert moved(world, ref, "/f") == "released"
    assert moved(world, ref, "/g") == "kept"


def test_a_lock_is_not_moved_under_what_runs(world: World) -> None:
    steps = (Step(id="a", action=Action.AGENT, folder=True),
             Step(id="b", action=Action.AGENT, folder=True, needs=()))  # fmt: skip
    about = About(kind="loop", name="x", cwd="/link", folder="/link", place="here")
    id_ = world.engine.submit.program(
        Program(body=(Loop(id="l", body=steps, max_iterations=1),)), about
    )
    ref = SessionRef(id_.session, id_.session)
    world.grant(ref, "l~1[1]/a")
    work = world.engine.attempts.work(ref, world.grant(ref, "l~1[1]/b"))
    assert world.engine.attempts.move_lock(work, Path("/f")).word == "kept"
    assert world.engine.attempts.beat(ref, work.grant).word == "ok"


def swept(world: World, ref: SessionRef) -> str | None:
    """Where a session is when its hint has gone unheard."""
    world.hints.clear()
    world.later(10_000)
    return world.engine.queries.session(ref.id).place


def test_a_session_that_nobody_began_moves_where_its_place_is_gone(world: World) -> None:
    ref = world.session(place="gone", chosen="yes")
    world.worker("here", "/f")
    world.worker("there", "/g")
    assert swept(world, ref) == "here"
    assert (ref, "loop~1[1]/do") in world.hints
    world.turn(ref, 1, "accept")
    assert world.engine.queries.session(ref.id).status == "completed"


def test_a_session_stays_where_another_place_is_not_sure(world: World) -> None:
    named = world.session(place="gone")
    there = world.session("/g/x", place="there", chosen="yes")
    twice = world.session("/g", place="gone", chosen="yes")
    nowhere = world.session("/h", place="gone", chosen="yes")
    world.worker("here", "/f", "/g")
    world.worker("there", "/g")
    world.worker("anywhere")
    assert [swept(world, ref) for ref in (named, there, twice, nowhere)] == [
        "gone", "there", "gone", "gone",
    ]  # fmt: skip


def test_a_session_that_was_begun_stays_at_its_place(bench: Bench) -> None:
    world = World.of(bench)
    ref = world.session(chosen="yes")
    world.engine.attempts.release(ref, world.grant(ref, "loop~1[1]/do"), why="drain")
    world.worker("there", "/f")
    assert swept(world, ref) == "here"
    world.settle(ref, world.grant(ref, "loop~1[1]/do"))
    assert swept(world, ref) == "here"


def test_a_move_to_another_place_is_looked_at_there_again(world: World) -> None:
    world.worker("here")
    world.worker("there")
    ref = world.session("/link")
    assert moved(world, ref, "/f") == "released"
    world.engine.control.rehome(ref.id, "there")
    there = world.at("there")
    assert moved(there, ref, "/mnt/f") == "released"
