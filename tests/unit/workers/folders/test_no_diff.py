"""A doer's outcome without a diff says why it has none."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from app.sessions.attempts import FolderState
from workers.folders import snapshots
from workers.folders.snapshots import Worktree
from workers.folders.work_diff import Look

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


Make = Callable[[Path], None] | None


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "one.txt").write_text("one\n")
    return folder


def repository(folder: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folder, check=True)


def look(folder: Path, *, most: int | None = None) -> Look:
    tree = Worktree(folder, folder.parent / "shelf", most=most)
    return Look(tree, "loop~1[1]/do", FolderState(None, compare=False))


def why_after(seen: Look) -> str | None:
    outcome = seen.add_diff(Outcome(word="succeeded"), ())
    assert outcome.diff is None
    return outcome.no_diff


def test_no_change(folder: Path) -> None:
    repository(folder)
    assert why_after(look(folder)) == "unchanged"


def refused(folder: Path) -> None:
    (folder / ".git").mkdir()


@pytest.mark.parametrize("before", [None, repository, refused])
@pytest.mark.parametrize("by_doer", [None, repository, refused])
def test_a_change_has_a_diff_and_no_reason_whatever_repository_the_folder_is_in(
    folder: Path, before: Make, by_doer: Make
) -> None:
    if before is not None:
        before(folder)
    seen = look(folder)
    if by_doer is not None and before is not by_doer:
        shutil.rmtree(folder / ".git", ignore_errors=True)
        by_doer(folder)
    (folder / "one.txt").write_text("two\n")
    outcome = seen.add_diff(Outcome(word="succeeded"), ())
    assert (outcome.diff, outcome.no_diff) == ("loop~1[1]/do", None)


def test_git_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(folder)
    monkeypatch.setenv("PATH", str(folder))
    assert why_after(look(folder)) == "no_git"


def test_a_folder_that_is_too_large(folder: Path) -> None:
    assert why_after(look(folder, most=3)) == "slow"
    assert why_after(look(folder, most=4)) == "unchanged"


def test_a_folder_that_takes_too_long_to_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "FILES", 0)
    seen = look(folder, most=0)
    assert why_after(seen) == "slow"
    monkeypatch.undo()
    assert why_after(seen) == "slow", "it is not read again soon"


def test_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repository(folder)
    seen = look(folder)
    (index,) = folder.parent.glob("shelf/*/index")
    index.unlink()
    index.mkdir()
    assert why_after(seen) == "unreadable"


def test_a_folder_that_could_not_be_read_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(snapshots, "FILES", 0)
        seen = look(folder, most=0)
    (folder.parent / "shelf" / "slow").unlink()
    assert why_after(seen) == "slow"
