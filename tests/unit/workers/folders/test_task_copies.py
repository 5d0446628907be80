"""Copies of plain folders for tasks."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from workers.git import copies
from workers.git.cleaning import clean
from workers.git.copies import write_digests
from workers.git.git import Cancelled, Git, WorkspaceRefused
from workers.git.layout import Record, Shelf, read_record
from workers.git.worktrees import Place

PLAN, LIMIT = "5e551045", 10_000


class Case:
    def __init__(self, folder: Path) -> None:
        self.origin = folder / "plain"
        self.place = Place(Shelf.of(folder / "state", self.origin), PLAN, "one", 1)
        (self.origin / "sub").mkdir(parents=True)
        (self.origin / "sub" / "script").write_text("#!/bin/sh\n")
        (self.origin / "sub" / "script").chmod(0o755)
        (self.origin / "link").symlink_to("sub/script")
        os.mkfifo(self.origin / "pipe")

    def make(self, *, most: int = LIMIT, cancel: threading.Event | None = None) -> Path:
        wanted = Record(kind="copy", origin=str(self.origin), task="one", run=1)
        made = copies.make_copy(
            self.place.path, wanted, most=most, cancel=cancel or threading.Event(),
            deadline=float("inf"), on_copied=lambda copy: write_digests(self.place.path, copy),
        )  # fmt: skip
        assert made.ready
        return self.place.path

    def clean(self, *, force: bool = False) -> str:
        return clean(Git(self.origin), self.place, force=force).kept


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_copy_has_all_files_but_pipes(case: Case) -> None:
    path = case.make()
    assert sorted(one.name for one in path.rglob("*")) == ["link", "script", "sub"]
    assert os.access(path / "sub/script", os.X_OK)
    assert (path / "link").is_symlink()
    (path / "new").write_text("work")
    assert case.make() == path
    assert (path / "new").read_text() == "work"


def test_unfinished_copy_is_made_anew(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            case.make()
    record = read_record(case.place.path)
    assert record is not None
    assert not record.ready
    (case.origin / "later").write_text("x")
    assert (case.make() / "later").exists()
    assert not list(case.place.path.parent.glob("*.draft"))


def test_cancelled_copy_is_not_taken_for_a_whole_one(case: Case) -> None:
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        case.make(cancel=cancel)
    assert not case.place.path.exists()
    assert (case.make() / "link").exists()


def test_large_folder_is_refused(case: Case) -> None:
    (case.origin / "large").write_bytes(bytes(LIMIT))
    with pytest.raises(WorkspaceRefused, match=r"more than 10,000 bytes \(LEADHAND_COPY_MAX\)"):
        case.make()
    assert not case.place.path.exists()


def test_clean_keeps_a_copy_with_work(case: Case) -> None:
    path = case.make()
    (path / "sub/script").write_text("#!/bin/bash\n")
    assert "--force removes them" in case.clean()
    assert path.exists()
    assert case.clean(force=True) == ""
    assert not path.exists()
    case.make()
    assert case.clean() == ""
    assert (case.origin / "sub/script").exists()
