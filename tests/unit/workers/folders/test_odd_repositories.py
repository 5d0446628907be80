"""Repositories that worktrees of sessions cannot be made of, and odd ones that they can."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.folders import RecordedState
from tests.unit.workers.folders.repositories import ENV, git
from tests.unit.workers.folders.session_homes import OneHome
from workers.git.git import WorkspaceRefused
from workers.git.repository import agent_warnings, check_repository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    return OneHome.clean_repository(tmp_path)


STATE = RecordedState("0123abcd", "tree", "do", 1_000_000)


def refused(one: OneHome, state: RecordedState | None = None) -> str:
    """Why no folder is made; nothing is left of the attempt."""
    with pytest.raises(WorkspaceRefused) as error:
        one.open(state=state)
    assert not one.home.path.exists()
    assert one.home.record is None
    return str(error.value)


def works(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work")
    one.close()
    one.apply()
    assert (one.origin / "new.txt").read_text() == "work"
    assert one.discard() == ""
    assert git(one.origin, "worktree", "list", "--porcelain").count("HEAD ") == 1


def on_path(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program named git first on the PATH; in it, $GIT is the real one."""
    folder.mkdir()
    program = folder / "git"
    program.write_text(f"#!/bin/sh\nGIT='{shutil.which('git')}'\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_no_git(one: OneHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    why = refused(one)
    assert why == "git is not installed; install it, or start the session without a worktree"


def test_fork_without_git_can_work_in_the_folder_as_it_is(
    one: OneHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subfolder = OneHome(one.origin, one.home.root, prefix="src")
    instead = "fork with --folder as-is to work in the folder as it is now"
    assert refused(subfolder, STATE).endswith(f"which the API could not see; {instead}")
    old = 'for a; do [ "$a" = version ] && echo "git version 2.1.0" && exit; done; exec "$GIT" "$@"'
    on_path(tmp_path / "old", old, monkeypatch)
    assert refused(one, STATE).endswith(f"install 2.17 or newer, or {instead}")
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert refused(one, STATE) == f"git is not installed; install it, or {instead}"


def test_git_that_is_too_old(one: OneHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = (
        'for a; do [ "$a" = version ] && echo "git version 2.16.6" && exit; done; exec "$GIT" "$@"'
    )
    on_path(tmp_path / "old", old, monkeypatch)
    assert "git is too old for worktrees (git version 2.16.6); install 2.17 or newer" in refused(
        one
    )


def test_git_that_cannot_merge_without_a_tree(
    one: OneHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.open()
    one.write("new.txt", "work")
    one.close()
    one.user_commits("one.txt", "mine\n")
    old = (
        'for a; do [ "$a" = merge-tree ] && echo "usage: git merge-tree" >&2 && exit 129; done;'
        ' exec "$GIT" "$@"'
    )
    on_path(tmp_path / "old", old, monkeypatch)
    with pytest.raises(WorkspaceRefused, match=r"git 2\.38 or newer can, or merge it yourself"):
        one.apply()
    assert not (one.origin / "new.txt").exists()


def test_full_disk(one: OneHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git fails in the middle of the checkout, after its folder and the branch were made."""
    full = (
        'for a; do [ "$a" = worktree ] && w=1; [ "$a" = add ] && [ "$w" ] && "$GIT" "$@" &&'
        ' echo "fatal: unable to write file: No space left on device" >&2 && exit 128; done;'
        ' exec "$GIT" "$@"'
    )
    on_path(tmp_path / "full", full, monkeypatch)
    assert "No space left on device" in refused(one)
    monkeypatch.undo()
    assert git(one.origin, "branch", "--list", "leadhand/*") == ""
    works(one)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda repo: git(repo, "config", "core.bare", "true"), "is a bare repository"),
        (lambda repo: (repo / ".git/rebase-merge").mkdir(), "a rebase is in progress"),
        (lambda repo: git(repo, "update-ref", "-d", "HEAD"), "has no commit to start from"),
        (lambda repo: (repo / ".git/HEAD").write_text("?"), "cannot be used: "),
        (lambda repo: git(repo, "branch", "leadhand"), "the branch 'leadhand' is in the way"),
    ],
)
def test_repository_that_worktrees_cannot_be_made_of(
    one: OneHome, make: Callable[[Path], object], why: str
) -> None:
    make(one.origin)
    found = refused(one)
    assert why in found
    assert "workspace:" not in found  # that is an option of plans


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_repository_of_another_user(one: OneHome, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(one.origin, 12345, 12345)
    os.chown(one.origin / ".git", 12345, 12345)
    monkeypatch.delenv("SUDO_UID", raising=False)
    assert "belongs to another user" in refused(one)


def test_worktrees_inside_the_repository(one: OneHome) -> None:
    inside = OneHome(one.origin, one.origin / "state")
    with pytest.raises(WorkspaceRefused, match="set LEADHAND_WORKTREES to one outside"):
        inside.open()


def test_hooks_that_fail(one: OneHome) -> None:
    for name in ("post-checkout", "pre-commit", "commit-msg", "pre-merge-commit", "post-merge"):
        hook = one.origin / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    works(one)


def test_sparse_checkout(one: OneHome) -> None:
    git(one.origin, "sparse-checkout", "set", "sub")
    one.open()
    assert (one.home.cwd / "sub" / "three.txt").exists()
    one.write("sub/three.txt", "work")
    one.close()
    one.apply()
    assert (one.origin / "sub" / "three.txt").read_text() == "work"
    assert git(one.origin, "ls-tree", "--name-only", "HEAD").split() == [
        ".gitignore", "one.txt", "sub", "two.txt"
    ]  # fmt: skip


def test_filters_such_as_those_of_lfs(one: OneHome) -> None:
    git(one.origin, "config", "filter.lfs.clean", "tr a-z A-Z")
    git(one.origin, "config", "filter.lfs.smudge", "tr A-Z a-z")
    git(one.origin, "config", "filter.lfs.required", "true")
    one.user_commits(".gitattributes", "*.bin filter=lfs\n")
    one.user_commits("large.bin", "content\n")
    assert git(one.origin, "show", "HEAD:large.bin") == "CONTENT"
    one.open()
    assert (one.home.cwd / "large.bin").read_text() == "content\n"
    one.write("large.bin", "changed\n")
    one.close()
    one.apply()
    assert (one.origin / "large.bin").read_text() == "changed\n"
    assert git(one.origin, "show", "HEAD:large.bin") == "CHANGED"


def with_filter(one: OneHome, command: str, *, required: bool = True) -> None:
    """Commit a file of the filter `lfs`, and set the filter to a command afterwards."""
    one.user_commits(".gitattributes", "*.bin filter=lfs -text\n")
    one.user_commits("large.bin", "content\n")
    git(one.origin, "config", "filter.lfs.process", command)
    git(one.origin, "config", "filter.lfs.required", str(required).lower())


def test_filter_that_is_not_installed(one: OneHome) -> None:
    with_filter(one, "no-such-program filter-process")
    why = "files of the repository need the program 'no-such-program' (git's filter 'lfs')"
    assert refused(one).startswith(why)
    assert git(one.origin, "branch", "--list", "leadhand/*") == ""
    with pytest.raises(WorkspaceRefused, match="need the program 'no-such-program'"):
        check_repository(one.git, "or what")
    git(one.origin, "update-index", "--force-remove", "large.bin")
    git(one.origin, "commit", "-qm", "No such files")
    (one.origin / "large.bin").unlink()
    works(one)


def test_filter_without_which_git_goes_on_is_a_warning(one: OneHome) -> None:
    with_filter(one, "no-such-program", required=False)
    assert "as they are stored" in agent_warnings(one.git)[0]
    git(one.origin, "config", "--remove-section", "filter.lfs")
    (warning,) = agent_warnings(one.git)
    assert warning.endswith("it is not configured on the worker (git lfs install)")
    works(one)


def test_signer_of_agents_commits_is_named(one: OneHome) -> None:
    one.open()
    assert agent_warnings(one.git, one.home.path) == []
    git(one.origin, "config", "commit.gpgsign", "true")
    git(one.origin, "config", "gpg.program", "cat")
    assert "waits if cat asks for a passphrase" in agent_warnings(one.git, one.home.path)[0]
    git(one.origin, "config", "gpg.program", "no-such-signer")
    (warning,) = agent_warnings(one.git, one.home.path)
    assert "'no-such-signer' is not installed on the worker" in warning
    works(one)


def test_hooks_in_an_ignored_folder_are_named_unless_the_worktree_has_them(one: OneHome) -> None:
    one.user_commits(".gitignore", ".husky/_/\n")
    git(one.origin, "config", "core.hooksPath", ".husky/_")
    assert agent_warnings(one.git) == []
    (one.origin / ".husky" / "_").mkdir(parents=True)
    one.open()
    (warning,) = agent_warnings(one.git, one.home.path)
    assert "git ignores '.husky/_' (core.hooksPath)" in warning
    (one.home.path / ".husky" / "_").mkdir(parents=True)
    assert agent_warnings(one.git, one.home.path) == []


def test_session_of_a_linked_worktree_comes_home_to_it(one: OneHome, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    git(one.origin, "worktree", "add", "-q", "-b", "linked", str(linked))
    other = OneHome(linked, one.home.root)
    other.open()
    other.write("new.txt", "work")
    other.close()
    assert other.apply().startswith("linked was fast-forwarded")
    assert (linked / "new.txt").exists()
    assert not (one.origin / "new.txt").exists()


def test_folder_that_git_does_not_track_is_copied(one: OneHome) -> None:
    build = one.origin / "build"
    build.mkdir()
    (build / "file").write_text("mine")
    other = OneHome(build, one.home.root, "build")
    assert other.open().kind == "copy"
    assert (other.home.cwd / "file").read_text() == "mine"
    other.write("file", "work")
    other.apply_copy()
    assert (build / "file").read_text() == "work"
    assert other.discard() == ""


def test_names_with_spaces_and_line_breaks(tmp_path: Path) -> None:
    repo = tmp_path / "a name\nof two lines é"
    repo.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main"], cwd=repo, env=ENV, check=True)
    git(repo, "commit", "-q", "--allow-empty", "-m", "Begin")
    works(OneHome(repo, tmp_path / "work trees"))
