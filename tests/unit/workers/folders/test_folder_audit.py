"""Audits of folders: each disagreement of folders, records and store is found and repaired."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.folders import KnownFolder, StoreFolders
from leadhand.models.views.fleet import FolderFindings
from leadhand.models.views.plan import WorktreeView
from tests.unit.workers.folders.repositories import git, user_state
from tests.unit.workers.folders.session_homes import BRANCH, SESSION, OneHome
from workers.git import worktrees
from workers.git.audit import Access, FolderAudit
from workers.git.layout import read_record, record_file, write_record

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
STORE = "the store"


class Audited:
    """A session with a worktree, and the store that knows it."""

    def __init__(self, home: OneHome) -> None:
        self.home = home
        self.path = home.home.path
        self.status: str | None = "completed"
        self.stored = True
        self.recorded: list[dict[str, Any]] = []
        self.record = home.open(store=STORE)

    def run(self, *, repair: bool = False, orphans_only: bool = False) -> FolderFindings:
        access = Access(self._ask, lambda fields: self.recorded.append(dict(fields)))
        audit = FolderAudit(self.home.home.root, access, repair=repair)
        return audit.run(orphans_only=orphans_only)

    def kinds(self, *, repair: bool = False) -> list[tuple[str, bool]]:
        return [(one.kind, one.mended) for one in self.run(repair=repair).items]

    def _ask(self, sessions: Sequence[str]) -> StoreFolders:
        view = WorktreeView(
            task="", run=1, session=SESSION, status=self.status, folder=str(self.path),
            branch=BRANCH, base=self.record.base,
        )  # fmt: skip
        known = KnownFolder(view, str(self.home.origin), self.record.target)
        statuses = {SESSION: self.status} if self.status and SESSION in sessions else {}
        return StoreFolders(STORE, statuses, (known,) if self.stored else ())


@pytest.fixture
def audited(tmp_path: Path) -> Audited:
    return Audited(OneHome.clean_repository(tmp_path))


@pytest.mark.parametrize("status", ["active", "stopped", "completed"])
def test_folder_that_agrees_with_all_its_records_is_no_finding(
    audited: Audited, status: str
) -> None:
    audited.status = status
    found = audited.run(repair=True)
    assert (found.items, found.folders) == ([], 1)


def test_record_without_a_folder_is_removed(audited: Audited) -> None:
    shutil.rmtree(audited.path)
    assert audited.kinds() == [("worktree_gone", False)]
    assert audited.kinds(repair=True) == [("worktree_gone", True)]
    assert not record_file(audited.path).exists()
    assert audited.recorded == [{"session": SESSION, "cleaned": True}]
    assert len(git(audited.home.origin, "worktree", "list").splitlines()) == 1
    audited.stored = False
    assert audited.kinds() == []


def test_branch_of_a_folder_that_is_gone_stays_with_its_commits(audited: Audited) -> None:
    audited.home.write("work.txt", "work")
    tip = audited.home.close()
    shutil.rmtree(audited.path)
    assert audited.kinds(repair=True) == [("worktree_gone", True)]
    assert git(audited.home.origin, "rev-parse", BRANCH) == tip


def test_folder_that_a_session_at_work_has_lost_is_named_only(audited: Audited) -> None:
    audited.status = "active"
    shutil.rmtree(audited.path)
    assert audited.kinds(repair=True) == [("worktree_gone", False)]
    assert record_file(audited.path).exists()


@pytest.mark.parametrize(("status", "kinds"), [("aborted", []), (None, ["worktree_gone"])])
def test_folder_that_was_never_made_is_a_finding_only_once_its_session_is_deleted(
    audited: Audited, status: str | None, kinds: list[str]
) -> None:
    audited.status, audited.stored = status, False
    shutil.rmtree(audited.path)
    write_record(audited.path, audited.record.model_copy(update={"ready": False}))
    assert [one.kind for one in audited.run().items] == kinds


def test_folder_without_a_record_gets_it_again_from_the_store(audited: Audited) -> None:
    before = read_record(audited.path)
    assert before is not None
    record_file(audited.path).unlink()
    assert audited.kinds() == [("worktree_unrecorded", False)]
    assert audited.kinds(repair=True) == [("worktree_unrecorded", True)]
    assert read_record(audited.path) == before.model_copy(update={"over": True})
    assert audited.kinds() == []


def test_folder_that_nothing_speaks_of_is_removed_without_work_only(audited: Audited) -> None:
    audited.stored = False
    record_file(audited.path).unlink()
    file = audited.home.write("work.txt", "work")
    found = audited.run(repair=True)
    assert [one.mended for one in found.items] == [False]
    assert "has changes or commits that are nowhere else" in found.items[0].what
    file.unlink()
    assert audited.kinds(repair=True) == [("worktree_unrecorded", True)]
    assert not audited.path.exists()


def test_folder_that_only_the_store_has_is_recorded_as_removed(audited: Audited) -> None:
    shutil.rmtree(audited.path)
    record_file(audited.path).unlink()
    kinds = ["worktree_missing", "worktree_stale"]
    origin = audited.home.origin
    other = audited.path.parents[1] / "another" / "tree"
    record = audited.record.model_copy(update={"session": "0123abcd", "branch": "other"})
    git(origin, "worktree", "add", "-q", "-b", "other", str(other))
    write_record(other, record.model_copy(update={"store": "of somebody else"}))
    assert sorted(kind for kind, _ in audited.kinds()) == kinds
    assert sorted(audited.kinds(repair=True)) == [(kind, True) for kind in kinds]
    assert audited.recorded == [{"session": SESSION, "cleaned": True}]


def test_folder_of_a_deleted_session_goes_once_its_work_is_merged(audited: Audited) -> None:
    audited.status, audited.stored = None, False
    audited.home.write("work.txt", "work")
    audited.home.close()
    before = user_state(audited.home.origin)
    found = audited.run(repair=True).items
    assert [(one.kind, one.mended) for one in found] == [("worktree_orphan", False)]
    assert "has commits that 'main' has not" in found[0].what
    assert "--force" not in found[0].what
    assert user_state(audited.home.origin) == before
    git(audited.home.origin, "merge", "-q", BRANCH)
    assert [one.mended for one in audited.run(repair=True, orphans_only=True).items] == [True]
    assert not audited.path.exists()
    assert not record_file(audited.path).exists()
    assert worktrees.tip(audited.home.git, BRANCH) is None


def test_uncommitted_change_of_a_deleted_session_stays(audited: Audited) -> None:
    audited.status, audited.stored = None, False
    file = audited.home.write("work.txt", "work")
    assert audited.kinds(repair=True) == [("worktree_orphan", False)]
    assert file.read_text() == "work"


@pytest.mark.parametrize("store", ["", "another"])
def test_folder_of_another_store_is_left_alone(audited: Audited, store: str) -> None:
    audited.status, audited.stored = None, False
    record = json.loads(record_file(audited.path).read_text())
    record_file(audited.path).write_text(json.dumps({**record, "store": store}))
    assert audited.run(repair=True, orphans_only=True).folders == 0
    assert audited.kinds(repair=True) == []


def test_worktree_that_git_has_forgotten_is_repaired(audited: Audited) -> None:
    moved = audited.home.origin.with_name("moved")
    audited.home.origin.rename(moved)
    assert audited.kinds(repair=True) == [("worktree_broken", False)]
    moved.rename(audited.home.origin)
    assert audited.kinds() == []
    (audited.path / ".git").write_text("gitdir: /nowhere\n")
    assert audited.kinds(repair=True) == [("worktree_broken", True)]
    assert git(audited.path, "status", "--porcelain") == ""


def test_copy_of_a_deleted_session_goes_if_it_has_no_work(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "given").write_text("given")
    audited = Audited(OneHome(tmp_path / "plain", tmp_path / "state"))
    audited.status, audited.stored = None, False
    file = audited.home.write("new", "work")
    assert audited.kinds(repair=True) == [("worktree_orphan", False)]
    file.unlink()
    assert audited.kinds(repair=True) == [("worktree_orphan", True)]
    assert not audited.path.exists()
