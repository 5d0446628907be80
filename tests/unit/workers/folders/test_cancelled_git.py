"""Git whose step is cancelled: it removes its locks, and finishes what changes the user's tree."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest

from tests.unit.workers.folders.repositories import git
from tests.unit.workers.folders.session_homes import OneHome
from workers.git import git as runner
from workers.git.applying import fast_forward
from workers.git.git import Cancelled, Git

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


class CancelledAt(threading.Event):
    """A step that is cancelled as soon as a file is there."""

    def __init__(self, mark: Path) -> None:
        super().__init__()
        self._mark = mark

    def is_set(self) -> bool:
        return self._mark.exists()


@pytest.fixture
def mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that git makes once it begins to merge in the user's tree, or to be slow."""
    mark, folder = tmp_path / "mark", tmp_path / "bin"
    folder.mkdir()
    program = folder / "git"
    program.write_text(
        "#!/bin/sh\n"
        f"case \" $* \" in *' --ff-only '*) touch '{mark}';; *' be-slow '*)\n"
        f"  trap 'touch \"{mark}.ended\"; exit 1' TERM; touch '{mark}'; sleep 60 & wait;;\n"
        f"*' be-deaf '*) trap '' TERM; touch '{mark}'; sleep 60;; esac\n"
        f"exec '{shutil.which('git')}' \"$@\"\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(runner, "_POLL_S", 0.001)
    return mark


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    """A session that has work to apply."""
    one = OneHome.clean_repository(tmp_path)
    one.open()
    one.write("new.txt", "work\n")
    one.close()
    return one


def test_cancel_does_not_end_the_update_of_the_users_tree(one: OneHome, mark: Path) -> None:
    one.git = Git(one.origin, CancelledAt(mark))
    assert "main was fast-forwarded" in one.apply()
    assert mark.exists()
    assert git(one.origin, "status", "--porcelain") == ""


def test_cancel_does_not_end_a_fast_forward_of_the_users_branch(one: OneHome, mark: Path) -> None:
    fast_forward(Git(one.origin, CancelledAt(mark)), one.home.require_record().branch)
    assert mark.exists()
    assert git(one.origin, "status", "--porcelain") == ""


def test_git_may_remove_its_locks_when_it_is_cancelled(one: OneHome, mark: Path) -> None:
    with pytest.raises(Cancelled):
        Git(one.origin, CancelledAt(mark))("be-slow")
    assert mark.with_name("mark.ended").exists()


def test_git_that_does_not_end_is_killed(
    one: OneHome, mark: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "_PATIENCE_S", 0.05)
    with pytest.raises(Cancelled):
        Git(one.origin, CancelledAt(mark))("be-deaf")
