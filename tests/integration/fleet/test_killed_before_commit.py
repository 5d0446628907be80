"""A worker that is killed before the commit of the work: each step ends once, and so does that.

It is killed in a check before the work, and between the doer's work and its commit.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from leadhand.models.documents import LoopDocument
from tests.fleet import Fleet
from tests.unit.workers.folders.repositories import git, make_repository
from workers.folders.snapshots import Worktree
from workers.folders.work_diff import SNAPSHOTS

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

#: A `git` for the workers. In a folder of a session with a plan, it kills the process that runs it
#: before or after the n-th call of a command.
GIT = """#!/bin/sh
session=${{PWD%/tree*}}; plan={plans}/${{session##*/}}
if test -e "$plan"; then
  read -r when word count < "$plan"
  for one; do if test "$one" = "$word"; then
    echo >> "$plan.calls"
    if test $(wc -l < "$plan.calls") = $count; then
      rm "$plan"
      test $when = before || {real} "$@"
      kill -9 $PPID
      exit 1
    fi
  fi; done
fi
exec {real} "$@"
"""
#: A checker that changes the work; unless its mark is there, it then kills its worker.
CHECK = """
import pathlib, psutil, sys
mark = pathlib.Path(sys.argv[1])
pathlib.Path("a.txt").write_text("mutant")
pathlib.Path("probe").touch()
if not mark.exists():
    mark.touch()
    next(p for p in psutil.Process().parents() if "leadhand.serve" in p.cmdline()).kill()
    sys.stdin.read()
"""
BASE, DO, JUDGE, KEEP = "base.check", "loop~1[1]/do", "loop~1[1]/judge", "keep"
#: When the worker is killed, by the step that is lost.
POINTS = {
    "in a check before the work": (BASE, "after check"),
    "after restoring what that check changed": (BASE, "after read-tree 1"),
    "before D": (DO, "before write-tree 2"),
    "after D": (DO, "after write-tree 2"),
    "after a check": ("loop~1[1]/check.check", "after check"),
    "before restoring": (JUDGE, "before read-tree 1"),
    "after restoring": (JUDGE, "after read-tree 1"),
    "after the commit": (KEEP, "after commit-tree 1"),
    "after the branch has moved": (KEEP, "after update-ref 1"),
    "after the index is reset": (KEEP, "after reset 1"),
}


class Killed:
    """Sessions of one worker, one for each point in time at which it is killed."""

    def __init__(self, folder: Path, fleet: Fleet) -> None:
        self.fleet, self.spill = fleet, folder / "spill"
        self.plans, self.programs = folder / "plans", folder / "programs"
        self.repo = make_repository(folder / "repo")
        git(self.repo, "reset", "-q", "--hard")
        self.plans.mkdir()
        self.programs.mkdir()
        (self.programs / "check.py").write_text(CHECK)
        (self.programs / "git").write_text(GIT.format(plans=self.plans, real=shutil.which("git")))
        (self.programs / "git").chmod(0o755)

    def submit(self, step: str, plan: str) -> str:
        mark = (
            self.plans / f"mark {step}".replace("/", "-") if plan == "after check" else self.plans
        )
        check = f"{sys.executable} {self.programs / 'check.py'} '{mark}'"
        document = LoopDocument.model_validate(
            {
                "task": "t", "cwd": str(self.repo), "worktree": True, "baseline": step == BASE,
                "doer": {"command": "test ! -e probe && echo work > a.txt"},
                "checkers": [{"name": "check", "command": check}],
            }
        )  # fmt: skip
        session = self.fleet.engine.submit.document(document).session
        if plan != "after check":
            (self.plans / session).write_text(f"{plan}\n")
        return session

    def end(self, session: str) -> dict[str, int]:
        """Wait for its end, and return its lost attempts; what was done must be committed once."""
        result, queries = self.fleet.ended(session, timeout=90), self.fleet.engine.queries
        assert result.status == "completed", result.reason
        events = queries.events(session, after="0-0", limit=500)
        settled = [one.address for one in events if one.type == "step.settled"]
        assert len(settled) == len({*settled})
        branch, folder = f"leadhand/{session}", Path(str(queries.session(session).cwd))
        assert git(self.repo, "rev-list", "--count", f"main..{branch}") == "1"
        assert git(self.repo, "show", f"{branch}:a.txt") == "work"
        work = self.fleet.engine.attempts.folder_state(SessionRef(session, session)).work
        assert work == f"git:{git(self.repo, 'rev-parse', f'{branch}^{{tree}}')}"
        assert Worktree(folder, self.spill / session / SNAPSHOTS).snapshot() == work
        assert git(folder, "status", "--porcelain") == ""
        return {one.address: one.lost for one in queries.steps(session).items if one.lost}


@pytest.fixture
def killed(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Killed]:
    env = {"LEADHAND_WORKTREES": str(tmp_path / "state"), "LEADHAND_CONCURRENCY": "4"}
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=1.5, **env)
    yield Killed(tmp_path, fleet)
    fleet.close()


def test_work_is_committed_once_whenever_the_worker_is_killed(killed: Killed) -> None:
    sessions = {name: killed.submit(step, plan) for name, (step, plan) in POINTS.items()}
    killed.fleet.worker("one", PATH=f"{killed.programs}:{killed.fleet.env['PATH']}")
    lost = {name: killed.end(session) for name, session in sessions.items()}
    assert lost == {name: {step: 1} for name, (step, _) in POINTS.items()}
