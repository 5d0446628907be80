"""Stored diffs are bounded, and a diff that was removed is reported as removed."""

from __future__ import annotations

from typing import Any

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Loop, Program, RetryPolicy, Step
from app.sessions.submit import About
from leadhand.models.views.step import NoDiffs
from tests.engine.world import World
from workers.folders.work_diff import pack_diff

DO = Step(id="do", action=Action.AGENT, retry=RetryPolicy(retries=1))
JUDGE = Step(id="judge", action=Action.JUDGE)
LOOP = Program(body=(Loop(id="loop", body=(DO, JUDGE), max_iterations=300, result="do"),))
RETRY = Outcome(word="succeeded", verdict="retry")
BYTES = 4 * 1024 * 1024
GONE = (
    "the oldest differences of the working folder were dropped: "
    "a session keeps the last 200, and 4 MiB of them"
)


@pytest.fixture
def world(store_url: str) -> World:
    return World(store_url)


@pytest.fixture
def ref(world: World) -> SessionRef:
    id_ = world.engine.submit.program(LOOP, About(kind="loop", name="x")).session
    return SessionRef(id_, id_)


def changes(world: World, ref: SessionRef, iteration: int, patch: str, word: str = "") -> None:
    """A doer's attempt that changed this; with a word, it failed to do the rest."""
    grant = world.grant(ref, f"loop~1[{iteration}]/do")
    work = f"work {iteration}"
    outcome = Outcome(word="failed", text=word) if word else Outcome(word="succeeded", text=work)
    seen = outcome.model_copy(update={"digest": f"git:{iteration}"})
    world.engine.attempts.settle(
        world.engine.attempts.work(ref, grant),
        seen,
        take=(),
        worker="w",
        patch=patch,
        changed=False,
    )
    if not word:
        world.settle(ref, world.grant(ref, f"loop~1[{iteration}]/judge"), RETRY)


def kept(world: World, ref: SessionRef) -> list[int]:
    page = world.engine.queries.diffs(ref.id, limit=500)
    assert page.next is None
    return [diff.iteration for diff in page.items]


def filled(number: int, size: int) -> str:
    """A kept difference of just this size: what is behind its end is not read."""
    text = pack_diff("git:a", "git:b", f"{number}")
    return text + "=" * (size - len(text))


def test_the_last_are_kept_by_their_bytes(world: World, ref: SessionRef) -> None:
    for number in range(1, 5):
        changes(world, ref, number, filled(number, BYTES // 4))
    assert kept(world, ref) == [1, 2, 3, 4]
    assert world.engine.queries.session(ref.id).warnings == []
    for number in (5, 6):
        changes(world, ref, number, filled(number, BYTES // 4))
    assert kept(world, ref) == [3, 4, 5, 6]
    assert world.engine.queries.session(ref.id).warnings == [GONE]


def test_an_export_holds_the_differences_and_what_was_said(world: World, ref: SessionRef) -> None:
    for number in range(1, 13):
        changes(world, ref, number, pack_diff("git:a", "git:b", f"change {number}"))
    exported = world.engine.queries.export(ref.id)
    patches = [diff.patch for diff in exported.differences]
    assert patches == [f"change {number}" for number in range(1, 13)]
    said = world.engine.queries.transcript(ref.id, limit=100).items
    assert exported.transcript == said
    assert [entry.text for entry in said] == [f"work {number}" for number in range(1, 13)]


def test_the_last_are_kept_by_their_number(world: World, ref: SessionRef) -> None:
    for number in range(1, 203):
        changes(world, ref, number, pack_diff("git:a", "git:b", "x"))
    assert kept(world, ref) == list(range(3, 203))
    assert world.engine.queries.session(ref.id).warnings == [GONE]


def test_what_comes_again_is_the_newest_and_counts_once(world: World, ref: SessionRef) -> None:
    changes(world, ref, 1, filled(1, BYTES - 1000))
    changes(world, ref, 2, filled(2, 600), word="once more")
    world.now += 600_000
    changes(world, ref, 2, filled(2, 700))
    assert kept(world, ref) == [1, 2]
    changes(world, ref, 3, filled(3, 400))
    assert kept(world, ref) == [2, 3]


def none_of(world: World, ref: SessionRef, iteration: int | None = None) -> NoDiffs | None:
    return world.engine.queries.diffs(ref.id, iteration=iteration).none


def in_folder(world: World, folder: str) -> SessionRef:
    id_ = world.engine.submit.program(LOOP, About(kind="loop", name="x", cwd=folder)).session
    return SessionRef(id_, id_)


def test_without_a_folder_or_an_ended_iteration_there_are_no_diffs(world: World) -> None:
    assert none_of(world, in_folder(world, "")) == NoDiffs(why="no_folder")
    ref = in_folder(world, "/somewhere")
    assert none_of(world, ref) == NoDiffs(why="not_ended", folder="/somewhere")
    assert none_of(world, ref, 3) == NoDiffs(why="not_ended", folder="/somewhere")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"no_diff": "slow"}, "slow"),
        ({"no_diff": "no_git", "digest": "files:a"}, "no_git"),
        ({"no_diff": "unchanged", "digest": "git:a"}, "unchanged"),
        ({}, "not_compared"),
    ],
)
def test_the_page_gives_the_reason_of_the_outcome(
    world: World, fields: dict[str, Any], why: str
) -> None:
    ref = in_folder(world, "/f")
    outcome = Outcome(word="succeeded").model_copy(update=fields)
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), outcome)
    for iteration in (None, 1):
        found = none_of(world, ref, iteration)
        assert found is not None
        assert found.why == why
    found = none_of(world, ref, 2)
    assert found is not None
    assert found.why == "not_ended"


def test_a_replaced_diff_is_named_as_replaced(world: World) -> None:
    ref = in_folder(world, "/f")
    for number in range(1, 4):
        patch = filled(number, BYTES // 2)
        grant = world.grant(ref, f"loop~1[{number}]/do")
        work = world.engine.attempts.work(ref, grant)
        outcome = Outcome(word="succeeded", digest=f"git:{number}", diff=grant.address)
        world.engine.attempts.settle(work, outcome, take=(), worker="w", patch=patch, changed=False)
        world.settle(ref, world.grant(ref, f"loop~1[{number}]/judge"), RETRY)
    assert kept(world, ref) == [2, 3]
    assert none_of(world, ref) is None
    assert none_of(world, ref, 1) == NoDiffs(why="replaced", folder="/f")
