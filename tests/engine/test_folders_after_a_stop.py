"""After a stop, or an answer about the work, the first step in the folder compares it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.program import Action, Program, Step
from app.core.records import Grant
from app.sessions.attempts import FolderState
from app.sessions.submit import About
from tests.engine.driving import Bench
from tests.engine.world import DONE, World
from workers.folders.snapshots import Worktree
from workers.folders.work_diff import Look, needs_snapshot

NOTED = "the working folder changed while the session was stopped"


def resumed(world: World) -> SessionRef:
    """A loop whose doer has worked in the folder, and that was stopped before its check."""
    ref = world.session()
    done = Outcome(word="succeeded", digest="files:1")
    world.settle(ref, world.grant(ref, "loop~1[1]/do"), done)
    world.engine.control.apply(ref.id, "stop")
    world.engine.control.apply(ref.id, "resume")
    return ref


@pytest.mark.parametrize("changed", [True, False])
def test_the_first_step_in_a_folder_looks_at_it_whatever_it_is(bench: Bench, changed: bool) -> None:
    world = World.of(bench)
    ref = resumed(world)
    check = world.grant(ref, "loop~1[1]/check")
    assert check.compare
    work = world.engine.attempts.work(ref, check)
    assert needs_snapshot(work)
    outcome = Outcome(word="succeeded", verdict="retry", digest="files:2")
    answer = world.engine.attempts.settle(work, outcome, take=["n"], worker="w", changed=changed)
    world.settle(ref, answer.grants[0], Outcome(word="succeeded", verdict="retry"))
    again = world.grant(ref, "loop~1[2]/do")
    assert not again.compare
    assert world.engine.attempts.folder_state(ref) == FolderState("files:2", compare=False)
    assert world.engine.queries.session(ref.id).warnings == ([NOTED] if changed else [])


def test_a_change_that_a_step_saw_which_was_handed_back_is_told(bench: Bench) -> None:
    world = World.of(bench)
    ref = resumed(world)
    check = world.grant(ref, "loop~1[1]/check")
    world.engine.attempts.release(ref, check, why="drain", digest="files:2", changed=True)
    assert world.engine.queries.session(ref.id).warnings == [NOTED]


def test_what_a_script_leaves_is_no_change_of_somebody_else(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    tree = Worktree(folder, tmp_path / "shelf")
    look = Look(tree, "a", FolderState(tree.snapshot(), compare=True), keeps=False)
    (folder / "left").write_text("by a script\n")
    outcome = look.add_diff(Outcome(word="succeeded"), ())
    assert not look.changed
    assert (look.patch, outcome.diff, outcome.digest) == (None, None, tree.snapshot())


SEEN = '{"digest": "files:1"}'
FAILED = Outcome(word="failed", retryable=False)


def answered(world: World, folder: str = "/f") -> SessionRef:
    """A session with an answer that counts for the folder, and three steps that follow."""
    ask = Step(id="ask", action=Action.HUMAN, timeout_s=600)
    one, two = (Step(id=i, action=Action.AGENT, folder=True, needs=("ask",), critical=False)
                for i in ("one", "two"))  # fmt: skip
    last = Step(id="last", action=Action.AGENT, folder=True, needs=("one",))
    about = About(kind="flow", name="x", cwd=folder, folder=folder, place="here")
    id_ = world.engine.submit.program(Program(body=(ask, one, two, last)), about).session
    ref, attempts = SessionRef(id_, id_), world.engine.attempts
    work = attempts.work(ref, world.grant(ref, "ask"))
    attempts.park(work, on="human", wait_ms=600_000, question="go on?", seen=SEEN, asked=1)
    world.engine.answers.give(id_, "yes")
    world.settle(ref, world.grant(ref, "ask"), Outcome(word="succeeded", digest="files:1"))
    return ref


def end(world: World, ref: SessionRef, grant: Grant, how: str) -> None:
    """End an attempt without a digest of the folder."""
    if how == "handed back":
        world.engine.attempts.release(ref, grant, why="drain")
    elif how == "failed":
        world.settle(ref, grant, FAILED)
    else:
        world.later(world.engine.settings.lease_ms + 1)


def test_answer_binds_the_folder_until_an_attempt_has_compared_it(bench: Bench) -> None:
    """An attempt that ends before that leaves it to the next one, of whatever step."""
    world = World.of(bench)
    for how in ("lost", "handed back", "failed"):
        compare_after(world, how)


def compare_after(world: World, how: str) -> None:
    ref = answered(world, f"/{how}")
    one = world.grant(ref, "one")
    assert one.approved
    again = world.engine.attempts.claim(ref, "one", nonce=one.nonce, worker="w")
    assert again.grants == (one,), "the reply to a claim may be lost"
    assert world.engine.attempts.beat(ref, one, changed=True).bound
    end(world, ref, one, how)
    at = "last" if how == "failed" else "one"
    next_one = world.grant(ref, at)
    assert (next_one.compare, next_one.approved) == (True, True)
    assert world.engine.attempts.beat(ref, next_one, compared=True).word == "ok"
    end(world, ref, next_one, "lost")
    assert not world.grant(ref, at).compare, "half of its work is no change of a person"


def test_steps_that_begin_side_by_side_after_an_answer_compare_the_folder_once(
    bench: Bench,
) -> None:
    world = World.of(bench)
    ref = answered(world)
    grants = [world.grant(ref, at) for at in ("one", "two")]
    assert [one.approved for one in grants] == [True, False]
    again = world.engine.attempts.claim(ref, "one", nonce=grants[0].nonce, worker="w")
    assert again.grants[0].approved
    assert not world.engine.attempts.beat(ref, grants[0], changed=True).bound
    world.settle(ref, grants[0], DONE)
    assert not world.grant(ref, "last").approved
