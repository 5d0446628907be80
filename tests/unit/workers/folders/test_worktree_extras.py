"""Ignored files that a session's worktree gets, and when it is prepared again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.security.command_permission import free_commands
from leadhand.models.documents import LoopDocument, WorktreeOptions
from tests.unit.workers.folders.repositories import git
from tests.unit.workers.folders.session_homes import OneHome
from workers.git.git import WorkspaceRefused
from workers.git.worktrees import copy_ignored, is_prepared, preparation, write_prepared

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    one = OneHome.clean_repository(tmp_path)
    one.user_commits(".gitignore", ".env\nlocal/\n")
    one.user_writes(".env", "SECRET=1\n")
    (one.origin / "local").mkdir()
    one.user_writes("local/settings", "mine\n")
    one.open()
    return one


def copy(one: OneHome, *names: str) -> list[str]:
    return copy_ignored(one.git, one.origin, one.home.path, names)


def test_ignored_files_are_copied_once_and_never_committed(one: OneHome) -> None:
    assert copy(one, ".env", "local", "absent") == ["absent"]
    assert (one.home.path / "local" / "settings").read_text() == "mine\n"
    one.write(".env", "SECRET=2\n")
    copy(one, ".env")
    assert (one.home.path / ".env").read_text() == "SECRET=2\n"
    one.write("new.txt", "work")
    commit = one.close()
    assert git(one.origin, "diff", "--name-only", "main", commit) == "new.txt"
    one.apply()
    assert (one.origin / ".env").read_text() == "SECRET=1\n"
    assert one.discard() == ""


def test_links_and_files_that_would_be_committed_are_refused(one: OneHome, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("elsewhere")
    (one.origin / "local" / "link").symlink_to(tmp_path / "secret")
    with pytest.raises(WorkspaceRefused, match="'local/link' is a symbolic link"):
        copy(one, "local")
    (one.origin / ".env").unlink()
    (one.origin / ".env").symlink_to(tmp_path / "secret")
    with pytest.raises(WorkspaceRefused, match=r"'\.env' is a symbolic link"):
        copy(one, ".env")
    one.user_writes("untracked", "mine")
    with pytest.raises(WorkspaceRefused, match="git does not ignore it"):
        copy(one, "untracked")
    assert git(one.home.path, "status", "--porcelain") == ""


@pytest.mark.parametrize("name", ["/etc/passwd", "../other", "a/../../b", ".git/config", "."])
def test_names_outside_of_the_repository_are_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="not within the repository"):
        WorktreeOptions.model_validate({"copy": [name]})


def test_folder_is_prepared_once_for_the_same_lock_files(one: OneHome) -> None:
    path = one.home.path
    digest = preparation([path], "npm ci")
    assert not is_prepared(path, digest)
    write_prepared(path, digest)
    assert is_prepared(path, preparation([path], "npm ci"))
    assert not is_prepared(path, preparation([path], "npm install"))
    one.write("package-lock.json", "{}")
    assert not is_prepared(path, preparation([path], "npm ci"))


def test_command_that_prepares_needs_the_right_to_bring_commands() -> None:
    given = {"task": "t", "checkers": ["agent: look"], "cwd": "/f"}
    with_files = LoopDocument.model_validate(given | {"worktree": {"copy": [".env"]}})
    assert list(free_commands(with_files)) == []
    with_command = LoopDocument.model_validate(given | {"worktree": {"prepare": "make"}})
    assert list(free_commands(with_command)) == ["worktree.prepare"]
