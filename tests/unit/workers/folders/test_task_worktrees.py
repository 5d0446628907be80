"""Worktrees of tasks, on real repositories: nothing of the user's changes, and no work is lost."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from app.core.folders import branch_of
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from workers.git import worktrees
from workers.git.cleaning import clean
from workers.git.git import Git, WorkspaceRefused
from workers.git.layout import Record, Shelf, read_record, record_file
from workers.git.repository import Repository, find_repository
from workers.git.worktrees import Place

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
PLAN = "5e551045"


class Killed(BaseException):
    """The worker died here."""


class Case:
    """A repository and the worktrees of one plan in it."""

    def __init__(self, folder: Path) -> None:
        self.repo = make_repository(folder / "the user's repo")
        self.root = folder / "state" / "worktrees"
        self.git = Git(self.repo)

    @property
    def found(self) -> Repository:
        found = find_repository(self.git)
        assert found is not None
        return found

    def place(self, task: str = "one", run: int = 1) -> Place:
        return Place(Shelf.of(self.root, self.found.common), PLAN, task, run)

    def make(self, task: str = "one", run: int = 1, *, using: Git | None = None) -> Path:
        place = self.place(task, run)
        wanted = Record(
            kind="worktree", origin=str(self.repo), task=task, run=run,
            branch=branch_of(PLAN, task), target=self.found.target,
        )  # fmt: skip
        with place.shelf.locked(threading.Event()):
            record = worktrees.make(using or self.git, place, wanted)
        assert record.ready
        return place.path

    def clean(self, task: str = "one", run: int = 1, *, force: bool = False) -> str:
        return clean(self.git, self.place(task, run), force=force).kept

    def branch(self, task: str = "one") -> str:
        return git(self.repo, "rev-parse", branch_of(PLAN, task))


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_worktree_starts_from_the_tip_and_leaves_the_users_tree_alone(case: Case) -> None:
    before = user_state(case.repo)
    path = case.make()
    assert (path / "one.txt").read_text() == "one.txt\n"
    assert not (path / "untracked").exists()
    assert git(path, "symbolic-ref", "HEAD") == f"refs/heads/leadhand/{PLAN}/one"
    assert path == case.root / case.place().shelf.folder.name / PLAN / "one"
    (path / "new").write_text("work")
    worktrees.keep(case.git, path, "Do it")
    assert git(case.repo, "show", f"leadhand/{PLAN}/one:new") == "work"
    assert case.clean(force=True) == ""
    assert user_state(case.repo) == before


def test_repository_that_the_work_names_as_a_submodule_is_kept_as_files(case: Case) -> None:
    path = case.make()
    made = path / "made"
    made.mkdir()
    git(made, "init", "-q")
    (made / "new").write_text("work")
    git(made, "add", "new")
    git(made, "commit", "-qm", "1")
    (path / ".gitmodules").write_text('[submodule "made"]\n\tpath = made\n\turl = ./made\n')
    worktrees.keep(case.git, path, "Do it")
    assert git(case.repo, "show", f"leadhand/{PLAN}/one:made/new") == "work"


def test_making_it_again_finds_the_same_with_its_work(case: Case) -> None:
    path = case.make()
    (path / "new").write_text("work")
    git(case.repo, "commit", "-qm", "meanwhile", "one.txt")
    base = read_record(path)
    assert case.make() == path
    assert (path / "new").read_text() == "work"
    assert read_record(path) == base
    later = case.make("two")
    assert (later / "one.txt").read_text() == "staged\n"  # from the tip as it is now


def test_tip_of_the_branch_counts_that_was_checked_out_at_the_start(case: Case) -> None:
    target = case.found.target
    assert target == "refs/heads/main"
    git(case.repo, "checkout", "-q", "--detach")
    assert case.found.target == git(case.repo, "rev-parse", "HEAD")


class DyingGit(Git):
    """A git whose worker is killed before or after its n-th call that writes."""

    calls: list[str]
    fatal: int
    before: bool

    def within(self, _: Mapping[str, str]) -> Git:
        return self

    def __call__(self, *arguments: str, given: str | None = None) -> str:
        writes = arguments[0] in ("branch", "update-ref") or arguments[:2] == ("worktree", "add")
        if not writes:
            return super().__call__(*arguments, given=given)
        self.calls.append(arguments[0])
        if len(self.calls) == self.fatal and self.before:
            raise Killed
        out = super().__call__(*arguments)
        if len(self.calls) == self.fatal:
            raise Killed
        return out


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("fatal", [1, 2])
def test_kill_between_the_steps_is_repaired(case: Case, fatal: int, *, before: bool) -> None:
    dying = DyingGit(case.repo)
    for name, value in {"calls": [], "fatal": fatal, "before": before}.items():
        object.__setattr__(dying, name, value)
    before_it = user_state(case.repo)
    with pytest.raises(Killed):
        case.make(using=dying)
    assert user_state(case.repo) == before_it
    record = read_record(case.place().path)
    assert record is not None
    assert not record.ready
    git(case.repo, "commit", "-qm", "meanwhile", "one.txt")
    meanwhile = user_state(case.repo)
    path = case.make()
    assert git(path, "rev-parse", "HEAD") == record.base  # not the tip of a later attempt
    assert git(path, "status", "--porcelain") == ""
    assert len(worktrees.list_worktrees(case.git)) == 2
    assert user_state(case.repo) == meanwhile


@pytest.mark.parametrize("lost", ["one.txt", ".git", "."])
def test_half_made_worktree_is_made_anew(case: Case, lost: str) -> None:
    path = case.make()
    record = read_record(path)
    assert record is not None
    record_file(path).write_text(record.model_copy(update={"ready": False}).model_dump_json())
    admin = Path(git(path, "rev-parse", "--git-dir"))
    (admin / "locked").write_text("initializing")
    if lost == ".":
        shutil.rmtree(path)
    else:
        (path / lost).unlink()
    assert case.make() == path
    assert git(path, "status", "--porcelain") == ""


def test_dirty_worktree_of_the_run_before_is_committed_not_dropped(case: Case) -> None:
    first = case.make()
    (first / "one.txt").write_text("half done\n")
    (first / "new").write_text("untracked\n")
    second = case.make(run=2)
    assert second.name == "one~2"
    assert git(second, "log", "-1", "--format=%s") == "leadhand: unfinished"
    assert (second / "one.txt").read_text() == "half done\n"
    assert (second / "new").read_text() == "untracked\n"
    assert (first / "new").exists()
    with pytest.raises(WorkspaceRefused, match="is on no branch"):
        worktrees.check(case.git, first, branch_of(PLAN, "one"))
    worktrees.check(case.git, second, branch_of(PLAN, "one"))
    assert read_record(second).base == read_record(first).base  # type: ignore[union-attr]


def test_turn_is_refused_on_another_branch_and_in_a_lost_worktree(case: Case) -> None:
    path = case.make()
    branch = branch_of(PLAN, "one")
    worktrees.check(case.git, path, branch)
    git(path, "checkout", "-q", "-b", "elsewhere")
    with pytest.raises(WorkspaceRefused, match="on the branch 'elsewhere'; check out"):
        worktrees.check(case.git, path, branch)
    git(path, "checkout", "-q", branch)
    (path / ".git").rename(path / "git")
    with pytest.raises(WorkspaceRefused, match="no git worktree any more"):
        worktrees.check(case.git, path, branch)
    shutil.rmtree(path)
    with pytest.raises(WorkspaceRefused, match="is gone; its commits are on the branch"):
        worktrees.check(case.git, path, branch)


def test_branch_that_the_user_checked_out_is_left_alone(case: Case) -> None:
    case.make()
    assert case.clean() == ""
    git(case.repo, "stash", "-q", "-u")
    git(case.repo, "checkout", "-q", "-b", branch_of(PLAN, "one"))
    with pytest.raises(WorkspaceRefused, match="check out another one there"):
        case.make()


def test_failed_creation_leaves_neither_folder_nor_branch(case: Case) -> None:
    git(case.repo, "config", "filter.broken.smudge", "false")
    git(case.repo, "config", "filter.broken.clean", "cat")
    git(case.repo, "config", "filter.broken.required", "true")
    (case.repo / ".gitattributes").write_text("*.txt filter=broken\n")
    git(case.repo, "add", ".gitattributes")
    git(case.repo, "commit", "-qm", "attributes", ".gitattributes")
    with pytest.raises(WorkspaceRefused, match="git worktree failed: error: external filter"):
        case.make()
    assert not list(case.place().path.parent.iterdir())
    assert git(case.repo, "branch", "--list", "leadhand/*") == ""
    assert len(worktrees.list_worktrees(case.git)) == 1


def commit(path: Path) -> None:
    (path / "new").write_text("work")
    git(path, "add", "-A")
    git(path, "commit", "-qm", "work")


def dirty(path: Path) -> None:
    (path / "new").write_text("work")


def changed(path: Path) -> None:
    (path / "two.txt").write_text("work")


@pytest.mark.parametrize(
    ("work", "why"),
    [(commit, "has commits that 'main' has not"), (dirty, "uncommitted"), (changed, "uncommitted")],
)
def test_clean_keeps_unmerged_and_dirty_ones(
    case: Case, work: Callable[[Path], None], why: str
) -> None:
    path = case.make()
    work(path)
    before = case.branch()
    assert why in case.clean()
    assert path.exists()
    assert case.branch() == before
    assert case.clean(force=True) == ""
    assert not path.exists()
    shown = git(case.repo, "diff", "--name-only", "main", branch_of(PLAN, "one"))
    assert shown in ("new", "two.txt")  # no work is lost even so


def test_clean_removes_what_is_merged_with_its_branch(case: Case) -> None:
    path = case.make()
    commit(path)
    git(case.repo, "merge", "-q", "--ff-only", branch_of(PLAN, "one"))
    assert case.clean() == ""
    assert git(case.repo, "branch", "--list", "leadhand/*") == ""
    assert not path.exists()
    assert not record_file(path).exists()
    assert case.clean() == ""  # again: nothing is left to do


def test_clean_keeps_repositories_and_commits_that_nothing_else_has(case: Case) -> None:
    path = case.make()
    make_repository(path / "inner")
    assert "a repository of its own in 'inner'" in case.clean(force=True)
    shutil.rmtree(path / "inner")
    git(path, "checkout", "-q", "--detach")
    commit(path)
    assert "on no branch" in case.clean(force=True)
    assert (path / "new").exists()


def test_clean_of_runs_removes_the_branch_with_the_last(case: Case) -> None:
    case.make()
    case.make(run=2)
    assert case.clean() == ""
    assert git(case.repo, "branch", "--list", "leadhand/*") != ""
    assert case.clean(run=2) == ""
    assert git(case.repo, "branch", "--list", "leadhand/*") == ""


def refused(folder: Path) -> str:
    with pytest.raises(WorkspaceRefused) as caught:
        find_repository(Git(folder))
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_repositories_without_worktrees_are_refused_in_one_sentence(tmp_path: Path) -> None:
    bare, empty, repo = tmp_path / "bare", tmp_path / "empty", make_repository(tmp_path / "repo")
    bare.mkdir()
    git(bare, "init", "-q", "--bare")
    assert "is a bare repository and has no working tree" in refused(bare)
    empty.mkdir()
    git(empty, "init", "-q")
    assert "has no commit to start from" in refused(empty)
    assert "is inside a .git folder" in refused(repo / ".git")
    (repo / ".git/rebase-merge").mkdir()
    assert "a rebase is in progress" in refused(repo)
    (repo / ".git/rebase-merge").rmdir()
    (repo / ".git/config").write_text("[core\n")
    assert "cannot be used: git rev-parse failed: fatal: bad config" in refused(repo)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder to another user")
def test_repository_of_another_user_is_refused(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    for path in (repo, repo / ".git"):
        os.chown(path, 12345, 12345)
    assert "belongs to another user, and git does not trust it" in refused(repo)


def test_folder_that_git_does_not_track_is_no_repository(tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    (repo / "scratch").mkdir()
    assert find_repository(Git(repo / "scratch")) is None
    assert find_repository(Git(tmp_path)) is None
    inside = find_repository(Git(repo / "sub"))
    assert inside is not None
    assert (inside.top, inside.prefix) == (repo, "sub")


def test_without_git_only_a_repository_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = make_repository(tmp_path / "repo")
    monkeypatch.setenv("PATH", "/nonexistent")
    assert find_repository(Git(tmp_path)) is None
    assert "git is not installed" in refused(repo / "sub")
