"""What doctor says about folders of sessions that are left over, and about those that are gone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leadhand.cli.folder_checks import folder_findings
from leadhand.client.client import Client
from tests.scripted_api import TOKEN, scripted_api

KNOWN, DELETED = "5e551045", "0badcafe"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "worktrees"


def record(root: Path, session: str, origin: Path) -> Path:
    """A folder of a session, with the record beside it that a worker writes."""
    folder = root / "0123456789abcdef" / session / "tree"
    folder.mkdir(parents=True)
    facts = {"kind": "copy", "origin": str(origin), "task": "tree", "run": 1, "session": session}
    folder.with_name("tree.json").write_text(json.dumps(facts))
    return folder


def found(root: Path, work: Path, **worktree: object) -> list[str]:
    own = {"kind": "copy", "origin": str(work), **worktree} if worktree else None
    with scripted_api() as (url, script):
        script.add(KNOWN, "failed", about={"worktree": own})
        with Client(url, TOKEN) as client:
            findings = list(folder_findings(root, work, client))
    assert {one.level for one in findings} <= {"warn"}
    return [f"{one.text} -> {one.mend}" for one in findings]


def test_folder_of_a_session_that_was_deleted_is_named(root: Path) -> None:
    work = root.parent / "work"
    record(root, KNOWN, work)
    left = record(root, DELETED, work / "sub")
    [text] = found(root, work)
    assert text.startswith(f"{left} is of session {DELETED}, which the store does not have -> ")


def test_folder_of_another_installation_is_left_alone(root: Path) -> None:
    record(root, DELETED, root.parent / "other")
    assert found(root, root.parent / "work") == []


def test_folder_that_is_gone_is_named_until_it_is_cleaned(root: Path) -> None:
    work, gone = root.parent / "work", root / "0123456789abcdef" / KNOWN / "tree"
    [text] = found(root, work, folder=str(gone))
    assert text == (f"{gone} of session {KNOWN} is gone -> leadhand worktree clean {KNOWN} --force")
    assert found(root, work, folder=str(gone), cleaned=True) == []
    gone.mkdir(parents=True)
    assert found(root, work, folder=str(gone)) == []


def test_unreadable_record_is_passed_over(root: Path) -> None:
    work = root.parent / "work"
    record(root, DELETED, work).with_name("tree.json").write_text("[")
    assert found(root, work) == []
