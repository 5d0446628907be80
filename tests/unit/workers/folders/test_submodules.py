"""Worktrees with submodules: what is only in a submodule is kept, all others can be removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.workers.folders.repositories import git
from tests.unit.workers.folders.session_homes import BRANCH, OneHome

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def file_git(folder: Path, *arguments: str) -> None:
    """Git that clones submodules from folders."""
    git(folder, "-c", "protocol.file.allow=always", *arguments)


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    """A session in a repository with the submodule `m`, which has the submodule `inner`."""
    inner = OneHome.clean_repository(tmp_path / "inner").origin
    module = OneHome.clean_repository(tmp_path / "module").origin
    file_git(module, "submodule", "add", "-q", str(inner), "inner")
    git(module, "commit", "-qm", "Add a module")
    one = OneHome.clean_repository(tmp_path)
    file_git(one.origin, "submodule", "add", "-q", str(module), "m")
    git(one.origin, "commit", "-qm", "Add a module")
    one.open()
    return one


def fill(one: OneHome) -> Path:
    file_git(one.home.path, "submodule", "update", "-q", "--init", "--recursive")
    return one.home.path / "m"


def commit(path: Path) -> None:
    (path / "new.txt").write_text("work\n")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "work")


def is_removed(one: OneHome) -> bool:
    return not one.home.path.exists() and not git(one.origin, "branch", "--list", BRANCH)


def test_empty_ones_do_not_keep_a_worktree(one: OneHome) -> None:
    one.write("new.txt", "work\n")
    one.close()
    one.apply()
    assert one.discard() == ""
    assert is_removed(one)
    assert (one.origin / "m" / "one.txt").exists()


def test_filled_ones_do_not_keep_a_worktree(one: OneHome) -> None:
    fill(one)
    one.write("new.txt", "work\n")
    one.close()
    one.apply()
    assert one.discard() == ""
    assert is_removed(one)
    assert (one.origin / "m" / "one.txt").exists()


def changed(module: Path) -> None:
    (module / "one.txt").write_text("work\n")


def untracked(module: Path) -> None:
    (module / "new.txt").write_text("work\n")


def recorded(module: Path) -> None:
    """The commit is recorded in the session's branch, but it is only in this submodule."""
    commit(module)
    commit(module.parent)


def on_a_branch(module: Path) -> None:
    git(module, "checkout", "-q", "-b", "own")
    commit(module)
    git(module, "checkout", "-q", "--detach", "HEAD~1")


def stashed(module: Path) -> None:
    changed(module)
    git(module, "stash", "-q")


def changed_within(module: Path) -> None:
    changed(module / "inner")


def stashed_within(module: Path) -> None:
    stashed(module / "inner")


@pytest.mark.parametrize(
    "work",
    [changed, untracked, commit, recorded, on_a_branch, stashed, changed_within, stashed_within],
)
def test_work_in_a_submodule_keeps_the_worktree(one: OneHome, work: Callable[[Path], None]) -> None:
    module = fill(one)
    work(module)
    assert "a repository of its own in 'm'" in one.discard(force=True)
    assert (module / ".git").exists()


def test_pushed_commit_does_not_keep_the_worktree(one: OneHome, tmp_path: Path) -> None:
    module = fill(one)
    recorded(module)
    git(module, "push", "-q", "origin", "HEAD:refs/heads/work")
    assert one.discard(force=True) == ""
    assert not one.home.path.exists()


def test_repository_beside_a_submodule_keeps_the_worktree(one: OneHome) -> None:
    module = fill(one)
    git(one.home.path, "init", "-q", "beside")
    assert "a repository of its own in 'beside'" in one.discard(force=True)
    assert module.exists()
