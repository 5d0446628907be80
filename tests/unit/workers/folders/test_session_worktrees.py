"""The worktree of a session, on real repositories: made, applied to the user's branch, removed."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from app.sessions.attempts import FolderState
from app.sessions.presenters import diff_view
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from tests.unit.workers.folders.session_homes import BRANCH, OneHome
from workers.folders.snapshots import Worktree
from workers.folders.work_diff import Look
from workers.git.git import Git, WorkspaceRefused
from workers.processes.nested_repositories import LARGE

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    return OneHome.clean_repository(tmp_path)


def refused(one: OneHome) -> str:
    """Why the work is not applied; nothing of the user's has changed."""
    before = user_state(one.origin)
    with pytest.raises(WorkspaceRefused) as error:
        one.apply()
    assert user_state(one.origin) == before
    return str(error.value)


def test_users_tree_stays_as_it_is_until_the_work_is_applied(tmp_path: Path) -> None:
    one = OneHome(make_repository(tmp_path / "repo"), tmp_path / "worktrees")
    before = user_state(one.origin)
    record = one.open()
    assert (record.kind, record.branch, record.target) == ("worktree", BRANCH, "refs/heads/main")
    one.write("new.txt", "work")
    commit = one.close()
    assert git(one.origin, "rev-parse", BRANCH) == commit
    assert user_state(one.origin) == before


def test_branch_is_fast_forwarded_and_then_clean_removes_all(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work")
    commit = one.close()
    assert "has commits that 'main' has not" in one.discard()
    assert one.apply() == f"main was fast-forwarded to {commit[:12]}"
    assert (one.origin / "new.txt").read_text() == "work"
    assert git(one.origin, "status", "--porcelain") == ""
    assert one.apply() == f"main has all commits of {BRANCH} already"
    assert one.discard() == ""
    assert not one.home.path.exists()
    assert git(one.origin, "branch", "--list", "leadhand/*") == ""


def test_branch_that_moved_on_is_merged(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work")
    theirs = one.close()
    one.user_commits("one.txt", "mine\n")
    ours = git(one.origin, "rev-parse", "HEAD")
    done = one.apply()
    assert done.startswith(f"{BRANCH} was merged into main as ")
    assert git(one.origin, "log", "-1", "--format=%P") == f"{ours} {theirs}"
    assert (one.origin / "new.txt").read_text() == "work"
    assert (one.origin / "one.txt").read_text() == "mine\n"
    assert git(one.origin, "status", "--porcelain") == ""


def test_conflict_names_the_files_and_changes_nothing(one: OneHome) -> None:
    one.open()
    one.write("one.txt", "work\n")
    one.close()
    one.user_commits("one.txt", "mine\n")
    assert "nothing was changed: both sides changed one.txt" in refused(one)
    assert not (one.origin / ".git" / "MERGE_HEAD").exists()


def test_only_files_that_the_work_has_too_are_in_the_way(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work\n")
    one.close()
    one.user_writes("new.txt", "mine\n")
    assert "new.txt would be overwritten" in refused(one)
    one.user_commits("two.txt", "mine\n")  # so that it is merged
    (one.origin / "new.txt").write_text("mine\n")
    assert "new.txt would be overwritten" in refused(one)
    (one.origin / "new.txt").unlink()
    one.user_writes("one.txt", "mine\n")
    assert "was merged into main" in one.apply()
    assert (one.origin / "one.txt").read_text() == "mine\n"


def test_ignored_file_of_the_user_is_not_overwritten(one: OneHome) -> None:
    assert (one.origin / "ignored").read_text() == "mine too\n"
    one.open()
    one.write("ignored", "work\n")
    git(one.home.cwd, "add", "--force", "ignored")
    one.close()
    assert "ignored would be overwritten" in refused(one)
    one.user_commits("two.txt", "mine\n")  # so that it is merged
    assert "ignored would be overwritten" in refused(one)


def test_other_branch_detached_head_and_waiting_merge_are_refused(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work\n")
    one.close()
    git(one.origin, "checkout", "-q", "-b", "other")
    assert "'other' is checked out" in refused(one)
    git(one.origin, "checkout", "-q", "--detach")
    assert "no branch is checked out" in refused(one)
    git(one.origin, "checkout", "-q", "main")
    (one.origin / ".git" / "MERGE_HEAD").write_text(git(one.origin, "rev-parse", "HEAD") + "\n")
    assert "a merge is in progress" in refused(one)


def test_protected_branch_is_left_alone(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work\n")
    one.close()
    git(one.origin, "config", "--add", "leadhand.protected", "ma?n")
    why = refused(one)
    assert f"'main' is protected (leadhand.protected); run `git merge {BRANCH}`" in why
    one.user_commits("one.txt", "mine\n")  # so that it would be merged
    assert "'main' is protected" in refused(one)


def test_session_from_a_detached_head_works_and_says_how_to_take_it(one: OneHome) -> None:
    git(one.origin, "checkout", "-q", "--detach")
    one.open()
    one.write("new.txt", "work\n")
    one.close()
    assert f"run `git merge {BRANCH}` on the branch" in refused(one)


def test_what_an_unaccepted_session_left_is_applied_too(one: OneHome) -> None:
    one.open(leave_out=("/built/",))
    one.write("new.txt", "left")
    one.write("built/a.txt", "no work")
    large = one.write("large", "")
    os.truncate(large, LARGE + 1)
    one.apply()
    assert (one.origin / "new.txt").read_text() == "left"
    assert git(one.origin, "log", "-1", "--format=%s") == "leadhand: unfinished"
    assert git(one.origin, "ls-files", "built", "large") == ""
    assert "too large to be committed: large; move them elsewhere first" in one.discard(force=True)
    large.unlink()
    assert one.discard() == ""


def test_session_in_a_subfolder_works_in_the_same_subfolder(tmp_path: Path) -> None:
    repo = OneHome.clean_repository(tmp_path).origin
    one = OneHome(repo / "sub", tmp_path / "worktrees", "sub")
    one.open()
    assert (one.home.cwd / "three.txt").exists()
    one.write("new.txt", "work")
    one.close()
    one.apply()
    assert (repo / "sub" / "new.txt").read_text() == "work"


def test_subfolder_that_the_api_could_not_see_is_refused(tmp_path: Path) -> None:
    repo = OneHome.clean_repository(tmp_path).origin
    one = OneHome(repo / "sub", tmp_path / "worktrees")
    with pytest.raises(WorkspaceRefused, match="is not the top of its repository"):
        one.open()
    assert git(repo, "worktree", "list").count("\n") == 0


def test_cancelled_and_repeated_opening_leave_one_worktree(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work")
    assert one.open().ready
    assert (one.home.cwd / "new.txt").read_text() == "work"
    cancel = threading.Event()
    cancel.set()
    with one.home.locked(one.git, "worktree"), pytest.raises(Exception, match=r"^$"):
        OneHome.open(_with(one, Git(one.origin, cancel)))
    assert git(one.origin, "worktree", "list").count("\n") == 1


def _with(one: OneHome, git_: Git) -> OneHome:
    other = OneHome(one.origin, one.home.root)
    other.git = git_
    return other


def test_diff_is_against_the_merge_base(one: OneHome, tmp_path: Path) -> None:
    """What the session took over from the user's branch meanwhile is not its work."""
    one.open()
    one.user_commits("two.txt", "the user's\n")
    work = Worktree(one.home.cwd, tmp_path / "spill")
    left = FolderState(None, compare=False)
    look = Look(work, "loop~1[1]/do", left, target="refs/heads/main")
    one.write("new.txt", "work\n")
    git(one.home.cwd, "merge", "-q", "main")
    look.add_diff(Outcome(word="succeeded"), ())
    assert look.patch is not None
    patch = diff_view("loop~1[1]/do", look.patch).patch
    assert "+++ b/new.txt" in patch
    assert "two.txt" not in patch
