"""After a stop, the first session in the folder reports whether its files have changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.sessions.attempts import FolderState
from tests.engine.driving import Bench
from tests.engine.world import World
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
