"""What a failed session left in its worktree is committed to its branch, once."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

from app.core.folders import branch_of
from app.engine import Engine
from tests.silent_engine import loop, silent_engine
from tests.unit.workers.folders.repositories import git, make_repository
from tests.unit.workers.folders.test_interrupted_rebase import rebase
from workers.git import worktrees
from workers.git.cleaning import WorktreeRescue
from workers.git.git import Git
from workers.git.layout import Record, Shelf, open_worktrees, record_file
from workers.git.own_folders import Home, open_folder
from workers.git.worktrees import Place

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PLAN = "5e551045"


@pytest.fixture
def engine(store_url: str, tmp_path: Path) -> Engine:
    engine = silent_engine(store_url)
    engine.settings = engine.settings.model_copy(update={"worktrees": tmp_path / "state"})
    return engine


def make(engine: Engine, session: str, tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    place = Place(Shelf.of(engine.settings.worktrees_root, repo / ".git"), PLAN, "one", 1)
    wanted = Record(
        kind="worktree", origin=str(repo), task="one", run=1, session=session,
        branch=branch_of(PLAN, "one"), target="refs/heads/main",
    )  # fmt: skip
    with place.shelf.locked(threading.Event()):
        worktrees.make(Git(repo), place, wanted)
    (place.path / "half").write_text("done")
    return place.path


def test_worktree_of_an_ended_session_is_committed_once(engine: Engine, tmp_path: Path) -> None:
    session = engine.submit.document(loop()).session
    path = make(engine, session, tmp_path)
    assert WorktreeRescue(engine).rescue() == []
    assert git(path, "status", "--porcelain") == "?? half"
    engine.control.apply(session, "abort")
    assert WorktreeRescue(engine).rescue() == [str(path)]
    assert git(path, "log", "-1", "--format=%s") == "leadhand: unfinished"
    assert git(path, "status", "--porcelain") == ""
    assert WorktreeRescue(engine).rescue() == []


def test_worktree_of_another_store_is_left_alone(engine: Engine, tmp_path: Path) -> None:
    path = make(engine, "0123abcd", tmp_path)
    assert WorktreeRescue(engine).rescue() == []
    assert git(path, "status", "--porcelain") == "?? half"


def test_rescue_reads_only_records_of_sessions_at_work(engine: Engine, tmp_path: Path) -> None:
    """A round costs as much as there are sessions at work, however many worktrees are kept."""
    root = engine.settings.worktrees_root
    session = engine.submit.document(loop()).session
    path = make(engine, session, tmp_path)
    rescue = WorktreeRescue(engine)
    rescue.rescue()
    assert list(open_worktrees(root)) == [path]
    engine.control.apply(session, "abort")
    rescue.rescue()
    assert list(open_worktrees(root)) == []
    assert record_file(path).exists()


def test_own_worktree_of_a_failed_session_is_committed(engine: Engine, tmp_path: Path) -> None:
    session = engine.submit.document(loop()).session
    repo = make_repository(tmp_path / "repo")
    home = Home(engine.settings.worktrees_root, session, repo, "")
    open_folder(Git(repo), home, most=1)
    (home.path / "half").write_text("done")
    engine.control.apply(session, "abort")
    assert WorktreeRescue(engine).rescue() == [str(home.path)]
    assert git(repo, "show", f"leadhand/{session}:half") == "done"


def test_worktree_in_the_middle_of_a_rebase_is_committed(engine: Engine, tmp_path: Path) -> None:
    """What the rebase left gets a branch of its own, and the task's branch is as it was."""
    session = engine.submit.document(loop()).session
    path = make(engine, session, tmp_path)
    branch = branch_of(PLAN, "one")
    rebase(path)
    tip = git(path, "rev-parse", branch)
    engine.control.apply(session, "abort")
    assert WorktreeRescue(engine).rescue() == [str(path)]
    assert git(path, "rev-parse", branch) == tip
    assert git(path, "symbolic-ref", "--short", "HEAD") == branch
    assert git(path, "log", "-1", "--format=%s", f"{branch}-unfinished") == "leadhand: unfinished"
    assert git(path, "show", f"{branch}-unfinished:new") == "untracked"
    assert git(path, "status", "--porcelain") == ""
    assert WorktreeRescue(engine).rescue() == []
