"""What is committed, judged and shown is the work of the doer, and not that of its checkers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.folders.test_fork_worktree import Sessions
from tests.unit.workers.folders.repositories import git, make_repository
from workers.workspaces.rescue import WorktreeRescue

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def sessions(store_url: str, tmp_path: Path) -> Iterator[Sessions]:
    sessions = Sessions(store_url, tmp_path)
    yield sessions
    sessions.attempts.close()


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    return repo


def submit(sessions: Sessions, cwd: Path, checker: str, **more: object) -> str:
    given = {"doer": {"command": "echo work > a.txt"}, "checkers": [checker], "worktree": True}
    return sessions.submit(cwd, **{**given, **more})


@pytest.mark.parametrize("prefix", ["", "sub"])
def test_edits_of_a_checker_are_not_committed_as_the_doers(
    sessions: Sessions, repo: Path, prefix: str
) -> None:
    mutant = "echo mutant >> a.txt; touch probe.txt"
    doer = {"command": "echo work > a.txt; echo above > above.txt"}
    if prefix:
        doer = {"command": "echo work > a.txt; echo above > ../above.txt"}
    session = submit(sessions, repo / prefix, mutant, doer=doer)
    assert sessions.status(session) == "completed", sessions.reason(session)
    branch = f"leadhand/{session}"
    changed = git(repo, "diff", "--name-only", f"main..{branch}").splitlines()
    assert changed == sorted(["above.txt", f"{prefix}/a.txt".removeprefix("/")])
    assert git(repo, "show", f"{branch}:{prefix}/a.txt".replace(":/", ":")) == "work"
    WorktreeRescue(sessions.engine).rescue()
    assert git(repo, "rev-list", "--count", f"main..{branch}") == "1"
