"""A rebase or bisect that a killed doer left in the middle: nothing is lost, and work goes on."""

from __future__ import annotations

import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.folders import branch_of
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from tests.unit.workers.folders.session_homes import BRANCH, OneHome
from workers.git import worktrees
from workers.git.cleaning import clean
from workers.git.git import Git, WorkspaceRefused
from workers.git.layout import Record, Shelf
from workers.git.worktrees import Place

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PLAN = "5e551045"
TASK = branch_of(PLAN, "one")
UNFINISHED = f"{TASK}-unfinished"


def rebase(path: Path) -> None:
    """Leave a rebase in a conflict, with a file that is in no commit."""
    commit(path, "base", "start")
    git(path, "branch", "-f", "other", "HEAD")
    commit(path, "base", "mine")
    mine = git(path, "symbolic-ref", "--short", "HEAD")
    git(path, "checkout", "-q", "other")
    commit(path, "base", "theirs")
    git(path, "checkout", "-q", mine)
    with pytest.raises(subprocess.CalledProcessError):
        git(path, "rebase", "-q", "other")
    (path / "new").write_text("untracked\n")


def bisect(path: Path) -> None:
    """Leave a bisect between its steps, with a file that is in no commit."""
    for number in range(4):
        commit(path, "base", str(number))
    git(path, "bisect", "start", "HEAD", "HEAD~3")
    (path / "new").write_text("untracked\n")


def commit(path: Path, name: str, text: str) -> None:
    (path / name).write_text(f"{text}\n")
    git(path, "add", name)
    git(path, "commit", "-qm", text)


class Case:
    """A repository and the worktrees of one task in it."""

    def __init__(self, folder: Path) -> None:
        self.repo = make_repository(folder / "repo")
        self.git = Git(self.repo)
        self.shelf = Shelf.of(folder / "state", self.repo / ".git")

    def make(self, run: int) -> Path:
        place = Place(self.shelf, PLAN, "one", run)
        wanted = Record(
            kind="worktree", origin=str(self.repo), task="one", run=run, branch=TASK,
            target="refs/heads/main",
        )  # fmt: skip
        with self.shelf.locked(threading.Event()):
            worktrees.make(self.git, place, wanted)
        return place.path

    def clean(self, run: int, *, force: bool = False) -> str:
        return clean(self.git, Place(self.shelf, PLAN, "one", run), force=force).kept

    def shows(self, branch: str, name: str) -> str:
        return git(self.repo, "show", f"{branch}:{name}")


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


@pytest.mark.parametrize("leave", [rebase, bisect])
def test_next_run_gets_the_branch_and_the_rest_is_kept(
    case: Case, leave: Callable[[Path], None]
) -> None:
    before, first = user_state(case.repo), case.make(1)
    leave(first)
    tip = git(case.repo, "rev-parse", TASK)
    second = case.make(2)
    assert git(second, "rev-parse", "HEAD") == tip == git(case.repo, "rev-parse", TASK)
    assert git(second, "symbolic-ref", "--short", "HEAD") == TASK
    assert case.shows(UNFINISHED, "new") == "untracked"
    assert git(first, "rev-parse", "HEAD") == git(case.repo, "rev-parse", UNFINISHED)
    assert (first / "new").exists()
    assert user_state(case.repo) == before


def test_conflict_is_kept_with_its_markers(case: Case) -> None:
    rebase(case.make(1))
    case.make(2)
    assert "<<<<<<<" in case.shows(UNFINISHED, "base")


def test_commit_that_only_the_rebase_has_is_kept(case: Case) -> None:
    first = case.make(1)
    rebase(first)
    git(first, "add", "-A")
    git(first, "commit", "-qm", "resolved")
    git(first, "update-ref", "refs/rewritten/label", "HEAD")  # of `git rebase --rebase-merges`
    case.make(2)
    assert git(case.repo, "log", "-1", "--format=%s", UNFINISHED) == "resolved"


def test_branch_of_that_name_is_left_alone(case: Case) -> None:
    git(case.repo, "branch", UNFINISHED, "main")
    rebase(case.make(1))
    case.make(2)
    assert git(case.repo, "rev-parse", UNFINISHED) == git(case.repo, "rev-parse", "main")
    assert case.shows(f"{UNFINISHED}-2", "new") == "untracked"


def test_rebase_of_which_git_left_only_a_part_is_ended_too(case: Case) -> None:
    first = case.make(1)
    rebase(first)
    state = Path(git(first, "rev-parse", "--git-path", "rebase-merge"))
    for file in state.iterdir():
        if file.name != "head-name":
            file.unlink()
    case.make(2)
    assert not state.exists()
    assert case.shows(UNFINISHED, "new") == "untracked"


@pytest.mark.parametrize(("leave", "what"), [(rebase, "rebase"), (bisect, "bisect")])
def test_clean_ends_it_only_with_force(
    case: Case, leave: Callable[[Path], None], what: str
) -> None:
    path = case.make(1)
    leave(path)
    tip = git(case.repo, "rev-parse", TASK)
    assert f"a {what} is in progress in it; --force ends that" in case.clean(1)
    assert path.exists()
    assert case.clean(1, force=True) == ""
    assert not path.exists()
    assert git(case.repo, "rev-parse", TASK) == tip
    assert case.shows(UNFINISHED, "new") == "untracked"


@pytest.mark.parametrize(("leave", "what"), [(rebase, "rebase"), (bisect, "bisect")])
def test_apply_of_a_session_refuses_and_says_why(
    tmp_path: Path, leave: Callable[[Path], None], what: str
) -> None:
    one = OneHome.clean_repository(tmp_path)
    one.open()
    leave(one.home.path)
    before = user_state(one.origin)
    with pytest.raises(WorkspaceRefused, match=f"a {what} is in progress in .*tree"):
        one.apply()
    assert user_state(one.origin) == before
    assert git(one.home.path, "status", "--porcelain").endswith("?? new")
    with pytest.raises(WorkspaceRefused, match=f"a {what} is in progress in"):
        worktrees.check(one.git, one.home.path, BRANCH)
