"""Fast-forwarding a branch of the user, on real repositories, and the reasons against it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.workers.folders.repositories import git, make_repository, user_state
from workers.git.applying import Forwarded, fast_forward
from workers.git.git import Git, WorkspaceRefused

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A clean repository, and a branch `work` with one commit more than `main`."""
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    git(repo, "checkout", "-q", "-b", "work")
    (repo / "new.txt").write_text("new\n")
    git(repo, "add", "new.txt")
    git(repo, "commit", "-qm", "second")
    git(repo, "checkout", "-q", "main")
    return repo


def test_clean_tree_follows_and_a_repeat_changes_nothing(repo: Path) -> None:
    old, new = git(repo, "rev-parse", "main"), git(repo, "rev-parse", "work")
    assert fast_forward(Git(repo / "sub"), "work") == Forwarded("main", old, new, ("untracked",))
    assert (repo / "new.txt").read_text() == "new\n"
    assert (repo / "untracked").read_text() == "mine\n"
    assert git(repo, "status", "--porcelain", "--untracked-files=no") == ""
    before = user_state(repo)
    assert fast_forward(Git(repo), "work") == Forwarded("main", new, new)
    assert user_state(repo) == before


def test_branch_that_is_checked_out_nowhere_follows(repo: Path) -> None:
    git(repo, "branch", "release", "main")
    before = user_state(repo)
    fast_forward(Git(repo), "work", "release")
    assert git(repo, "rev-parse", "release") == git(repo, "rev-parse", "work")
    assert user_state(repo) == before


def test_uncommitted_changes_stay_and_are_named(repo: Path) -> None:
    (repo / "one.txt").write_text("staged\n")
    git(repo, "add", "one.txt")
    (repo / "two.txt").write_text("mine\n")
    done = fast_forward(Git(repo), "work")
    assert done.uncommitted == ("one.txt", "two.txt", "untracked")
    assert [(repo / name).read_text() for name in ("one.txt", "two.txt")] == ["staged\n", "mine\n"]
    assert git(repo, "rev-parse", "main") == git(repo, "rev-parse", "work")


def in_the_way(repo: Path) -> None:
    (repo / "new.txt").write_text("mine\n")


def ignored(repo: Path) -> None:
    (repo / ".git" / "info" / "exclude").write_text("new.txt\n")
    in_the_way(repo)


def diverged(repo: Path) -> None:
    git(repo, "commit", "-q", "--allow-empty", "-m", "other")


def detached(repo: Path) -> None:
    git(repo, "checkout", "-q", "--detach")


def protected(repo: Path) -> None:
    git(repo, "config", "--add", "leadhand.protected", "rel-*")
    git(repo, "config", "--add", "leadhand.protected", "ma?n")


def rebasing(repo: Path) -> None:
    (repo / ".git" / "rebase-merge").mkdir()


def merging(repo: Path) -> None:
    (repo / ".git" / "MERGE_HEAD").write_text(git(repo, "rev-parse", "HEAD") + "\n")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (rebasing, "a rebase is in progress"),
        (merging, "a merge is in progress"),
        (in_the_way, "would be overwritten; move or commit"),
        (ignored, "would be overwritten; move or commit"),
        (diverged, "has commits that 'work' has not.*`git merge work`"),
        (detached, "no branch is checked out in .*; check one out"),
        (protected, r"'main' is protected \(leadhand.protected\)"),
    ],
)
def test_reason_is_one_sentence_and_nothing_changes(repo: Path, change: object, why: str) -> None:
    assert callable(change)
    change(repo)
    before = user_state(repo)
    with pytest.raises(WorkspaceRefused, match=why):
        fast_forward(Git(repo), "work")
    assert user_state(repo) == before


def test_branch_checked_out_elsewhere_is_left_alone(repo: Path, tmp_path: Path) -> None:
    git(repo, "worktree", "add", "-q", "-b", "release", str(tmp_path / "other"), "main")
    with pytest.raises(WorkspaceRefused, match=r"'release' is checked out in .*other"):
        fast_forward(Git(repo), "work", "release")
    assert git(repo, "rev-parse", "release") == git(repo, "rev-parse", "main")
    with pytest.raises(WorkspaceRefused, match="no branch 'none'"):
        fast_forward(Git(repo), "work", "none")
