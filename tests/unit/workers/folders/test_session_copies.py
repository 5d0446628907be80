"""The copy of a folder that is no repository: files come home where the original is unchanged."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.workers.folders.session_homes import OneHome
from workers.git.copies import Changes
from workers.git.git import WorkspaceRefused


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    folder = tmp_path / "plain"
    (folder / "sub").mkdir(parents=True)
    for name in ("one.txt", "two.txt", "sub/three.txt"):
        (folder / name).write_text(name)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "link").symlink_to("one.txt")
    return OneHome(folder, tmp_path / "worktrees")


def contents(folder: Path) -> dict[str, str]:
    files = (path for path in folder.rglob("*") if not path.is_dir())
    return {
        str(path.relative_to(folder)): f"-> {path.readlink()}" if path.is_symlink()
        else path.read_text() for path in files
    }  # fmt: skip


def refused(one: OneHome) -> str:
    before = contents(one.origin)
    with pytest.raises(WorkspaceRefused) as error:
        one.apply_copy()
    assert contents(one.origin) == before
    return str(error.value)


def test_changed_new_and_removed_files_come_home(one: OneHome) -> None:
    assert one.open().kind == "copy"
    one.write("one.txt", "work")
    one.write("new/deep.txt", "work")
    (one.home.cwd / "sub" / "three.txt").unlink()
    (one.home.cwd / "link").unlink()
    (one.home.cwd / "link").symlink_to("two.txt")
    (one.home.cwd / "run").chmod(0o644)
    before = contents(one.origin)
    assert before == contents(one.origin)
    one.user_writes("two.txt", "the user changed what the session did not")
    done = one.apply_copy()
    assert done == Changes(("link", "new/deep.txt", "one.txt", "run"), ("sub/three.txt",))
    assert contents(one.origin) == contents(one.home.cwd) | {
        "two.txt": "the user changed what the session did not"
    }
    assert (one.origin / "sub").is_dir()  # as in the copy
    assert not os.access(one.origin / "run", os.X_OK)
    assert one.apply_copy() == Changes((), ())


def test_empty_folders_that_were_made_or_removed_come_home(one: OneHome) -> None:
    for name in ("old/inner", "filled", "stays"):
        (one.origin / name).mkdir(parents=True)
    one.open()
    for name in ("made/deep", "private"):
        (one.home.cwd / name).mkdir(parents=True)
    (one.home.cwd / "private").chmod(0o700)
    shutil.rmtree(one.home.cwd / "old")
    one.write("filled/new.txt", "work")
    (one.home.cwd / "sub" / "three.txt").unlink()
    assert "differ from the original" in one.discard()
    done = one.apply_copy()
    assert done == Changes(
        ("filled/new.txt", "made/deep/", "private/"), ("old/inner/", "sub/three.txt")
    )
    folders = {str(path.relative_to(one.origin)) for path in one.origin.rglob("*") if path.is_dir()}
    assert folders == {"filled", "made", "made/deep", "private", "stays", "sub"}
    assert (one.origin / "private").stat().st_mode & 0o777 == 0o700
    assert one.apply_copy() == Changes((), ())
    assert one.discard() == ""


def test_folder_that_the_user_filled_meanwhile_is_kept(one: OneHome) -> None:
    (one.origin / "old").mkdir()
    one.open()
    (one.home.cwd / "old").rmdir()
    (one.home.cwd / "file").mkdir()
    one.user_writes("old/mine.txt", "mine")
    one.user_writes("file", "mine")
    assert "nothing was changed: file/ changed" in refused(one)
    (one.origin / "file").unlink()
    one.apply_copy()
    assert (one.origin / "old" / "mine.txt").read_text() == "mine"
    assert (one.origin / "file").is_dir()


def test_conflicts_are_named_and_nothing_is_changed(one: OneHome) -> None:
    one.open()
    for name in ("one.txt", "new.txt", "two.txt"):
        one.write(name, "work")
    (one.home.cwd / "sub" / "three.txt").unlink()
    one.user_writes("one.txt", "mine")
    one.user_writes("new.txt", "mine too")
    one.user_writes("sub/three.txt", "mine as well")
    assert "nothing was changed: new.txt, one.txt, sub/three.txt changed" in refused(one)


def test_same_change_on_both_sides_is_no_conflict(one: OneHome) -> None:
    one.open()
    one.write("one.txt", "same")
    one.user_writes("one.txt", "same")
    assert one.apply_copy() == Changes((), ())


def test_nothing_is_written_through_a_link_that_leads_elsewhere(
    one: OneHome, tmp_path: Path
) -> None:
    one.open()
    one.write("sub/three.txt", "work")
    elsewhere = tmp_path / "elsewhere"
    (one.origin / "sub").rename(elsewhere)
    (one.origin / "sub").symlink_to(elsewhere)
    assert "sub/three.txt changed" in refused(one)
    assert (elsewhere / "three.txt").read_text() == "sub/three.txt"


def test_folder_that_cannot_be_written_is_left_as_it_is(one: OneHome) -> None:
    one.open()
    one.write("one.txt", "work")
    one.write("sub/new/deep.txt", "work")
    (one.home.cwd / "sub" / "new" / "gone").symlink_to("x" * 10)
    one.write(f"sub/new/{'n' * 250}", "a name for which there is no draft beside it")
    (one.origin / "sub" / "new").write_text("a file where a folder is needed")
    assert "nothing was changed" in refused(one)


def test_full_disk_changes_nothing(one: OneHome) -> None:
    one.open()
    one.write("one.txt", "work")
    one.write("sub/new/large", "b" * 200_000)
    with file_limit(100_000):
        assert "nothing was changed" in refused(one)
    assert not (one.origin / "sub" / "new").exists()
    assert one.apply_copy().written == ("one.txt", "sub/new/large")


@contextmanager
def file_limit(size: int) -> Iterator[None]:
    """Let larger files fail in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_copy_larger_than_the_limit_is_refused(one: OneHome) -> None:
    one.most = 10
    with pytest.raises(WorkspaceRefused, match="start the session without a worktree"):
        one.open()
    assert not one.home.path.exists()


def test_copy_with_work_is_kept_and_forced(one: OneHome) -> None:
    one.open()
    one.write("one.txt", "work")
    assert "differ from the original" in one.discard()
    one.apply_copy()
    assert one.discard() == ""
    assert [path.name for path in one.home.path.parent.iterdir()] == []


def test_apply_that_was_killed_halfway_is_finished_by_the_next(
    one: OneHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.open()
    for name in ("one.txt", "two.txt", "new.txt"):
        one.write(name, "work")
    replace, done = Path.replace, list[Path]()

    def killed(self: Path, target: Path) -> Path:
        if done:
            raise Killed
        done.append(target)
        return replace(self, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", killed)
        with pytest.raises(Killed):
            one.apply_copy()
    assert one.apply_copy() == Changes(("one.txt", "two.txt"), ())
    assert contents(one.origin) == contents(one.home.cwd)


class Killed(BaseException):
    """The worker died here."""


def test_copy_from_which_a_file_was_removed_is_kept(one: OneHome) -> None:
    one.open()
    (one.home.cwd / "two.txt").unlink()
    assert "differ from the original" in one.discard()
    (one.origin / "two.txt").unlink()
    assert one.discard() == ""


def test_copy_without_work_is_removed_whatever_the_user_did(one: OneHome) -> None:
    one.open()
    one.user_writes("one.txt", "mine")
    assert one.discard() == ""
    assert (one.origin / "one.txt").read_text() == "mine"


def test_file_that_the_user_saves_while_the_copy_comes_home_is_kept(
    one: OneHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.open()
    for name in ("one.txt", "two.txt", "new/deep.txt"):
        one.write(name, "work")
    copy = shutil.copy

    def copy_and_save(source: Path, target: Path) -> None:
        one.user_writes("one.txt", "saved just now")
        copy(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "copy2", copy_and_save)
        with pytest.raises(WorkspaceRefused, match=r"nothing was changed: one\.txt changed"):
            one.apply_copy()
    assert (one.origin / "one.txt").read_text() == "saved just now"
    assert (one.origin / "two.txt").read_text() == "two.txt"
    assert not (one.origin / "new").exists()
    assert not list(one.origin.rglob(".leadhand-draft-*"))
