"""A verdict is about the folder that its checkers saw: if that has changed, it does not count."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.core.addresses import SessionRef
from app.core.outcomes import Outcome
from app.core.records import Grant
from app.sessions.attempts import Attempts
from leadhand.models.views.result import ChangedFiles
from tests.engine.folders.sessions import DOCUMENT, Sessions
from tests.unit.workers.folders.repositories import git, make_repository
from workers.attempt.settle import Settler

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

#: A doer that leaves a trace of each start outside of the folder.
DOER = {"command": "echo x >> ../starts; echo work > a.txt; echo I wrote a.txt"}
#: A person saves a file while this check runs: the first time, or each time.
SAVES_ONCE = "test -e ../saved || { touch ../saved; echo mine >> one.txt; }"
SAVES_EACH_TIME = "echo mine >> one.txt"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    return repo


def submit(sessions: Sessions, repo: Path, *checkers: str, **more: object) -> str:
    given = {"doer": DOER, "checkers": [*checkers], "max_iterations": 1, "baseline": False}
    return sessions.submit(repo, **{**given, **more})


def starts(repo: Path) -> int:
    return len((repo.parent / "starts").read_text().splitlines())


def test_checks_run_again_where_a_person_saved_a_file_meanwhile(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, f"{SAVES_ONCE}; grep -q work a.txt")
    assert sessions.status(session) == "completed", sessions.reason(session)
    stale, recheck = sessions.engine.queries.ledger(session).items
    assert (stale.verdict, stale.stale, stale.recheck) == ("retry", "accept", False)
    assert (recheck.verdict, recheck.stale, recheck.recheck) == ("accept", None, True)
    assert "does not count" in stale.feedback
    assert (recheck.work, starts(repo)) == ("I wrote a.txt", 1)
    assert recheck.digest != stale.digest
    view = sessions.engine.queries.session(session)
    assert view.counters.iterations == 1
    assert (repo / "one.txt").read_text() == "one.txt\nmine\n"
    evidence = sessions.engine.queries.result(session).evidence
    assert evidence is not None
    assert evidence.stale == ChangedFiles(files=["one.txt"], count=1)
    assert "the folder changed while checks ran, so they ran again: one.txt" in evidence.notes
    diffs = {one.by: one.patch for one in sessions.engine.queries.diffs(session, limit=9).items}
    assert "+mine" in diffs["checkers"]
    assert "+mine" not in diffs["doer"]


def test_loop_is_contested_where_a_person_saves_a_file_each_time(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, SAVES_EACH_TIME, max_iterations=4)
    view = sessions.engine.queries.session(session)
    assert view.reason is not None
    assert (view.status, view.reason.root.code) == ("failed", "contested")
    assert "again in the recheck: one.txt" in view.reason.root.text
    assert [one.stale for one in sessions.engine.queries.ledger(session).items] == ["accept"] * 2
    assert starts(repo) == 1
    assert (repo / "one.txt").read_text() == "one.txt\nmine\nmine\n"


def test_verdict_stands_where_only_a_report_of_the_checkers_changes_again(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, "date +%N >> report.txt", doer={"command": "true"})
    assert sessions.status(session) == "completed", sessions.reason(session)
    stale, recheck = sessions.engine.queries.ledger(session).items
    assert (stale.stale, recheck.verdict, recheck.stale) == ("accept", "accept", None)
    assert recheck.changed_by_checkers is not None
    assert recheck.changed_by_checkers.files == ["report.txt"]


def test_report_that_the_doer_wrote_too_is_work_that_is_contested(
    sessions: Sessions, repo: Path
) -> None:
    doer = {"command": "echo x >> ../starts; echo forged > report.txt"}
    session = submit(sessions, repo, "date +%N >> report.txt", doer=doer)
    reason = sessions.engine.queries.session(session).reason
    assert reason is not None
    assert reason.root.code == "contested"


def test_refusal_of_a_state_that_has_changed_is_stale_too(sessions: Sessions, repo: Path) -> None:
    """The person may have mended what the checker refuses."""
    session = submit(sessions, repo, f"test -e ../saved; r=$?; {SAVES_ONCE}; exit $r")
    assert sessions.status(session) == "completed", sessions.reason(session)
    stale, recheck = sessions.engine.queries.ledger(session).items
    assert (stale.stale, recheck.verdict, starts(repo)) == ("retry", "accept", 1)


def test_loop_goes_on_with_its_doer_after_a_recheck_that_was_refused(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(
        sessions, repo, f"{SAVES_ONCE}; test $(wc -l < ../starts) = 2", max_iterations=2
    )
    assert sessions.status(session) == "completed", sessions.reason(session)
    entries = sessions.engine.queries.ledger(session).items
    assert [one.recheck for one in entries] == [False, True, False]
    assert [one.verdict for one in entries] == ["retry", "retry", "accept"]
    assert starts(repo) == 2
    assert sessions.engine.queries.session(session).counters.iterations == 2


def test_limit_of_iterations_leaves_the_recheck_out(sessions: Sessions, repo: Path) -> None:
    session = submit(sessions, repo, f"{SAVES_ONCE}; false", max_iterations=2)
    reason = sessions.engine.queries.session(session).reason
    assert reason is not None
    assert reason.root.text == "not accepted within 2 iterations"
    assert starts(repo) == 2


def test_verdict_is_never_stale_in_a_worktree_of_the_sessions_own(
    sessions: Sessions, repo: Path
) -> None:
    session = submit(sessions, repo, SAVES_EACH_TIME, worktree=True)
    assert sessions.status(session) == "completed", sessions.reason(session)
    (entry,) = sessions.engine.queries.ledger(session).items
    assert (entry.verdict, entry.stale) == ("accept", None)


def test_protected_files_are_compared_again_in_a_recheck(sessions: Sessions, repo: Path) -> None:
    """What changed them may be a process that the doer has left behind."""
    session = submit(sessions, repo, SAVES_ONCE, protected=["one.txt"])
    view = sessions.engine.queries.session(session)
    assert view.reason is not None
    assert (view.status, view.reason.root.code) == ("failed", "tampered")
    assert starts(repo) == 1


def test_recheck_whose_worker_died_is_carried_out_by_the_next(
    sessions: Sessions, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passed_on, calls = Attempts.passed_on, list[str]()

    def die_once(attempts: Attempts, ref: SessionRef, grant: Grant) -> Outcome:
        calls.append(grant.address)
        if len(calls) == 1:
            raise RuntimeError("killed")
        return passed_on(attempts, ref, grant)

    monkeypatch.setattr(Attempts, "passed_on", die_once)
    monkeypatch.setattr(Settler, "run_guarded", lambda _, __, carry_out: carry_out())
    given = {
        "kind": "loop", "task": "t", "cwd": str(repo), "doer": DOER, "checkers": [SAVES_ONCE],
        "max_iterations": 1, "baseline": False,
    }  # fmt: skip
    document = DOCUMENT.validate_python(given)
    session = sessions.engine.submit.document(document, free=True).session
    with pytest.raises(RuntimeError, match="killed"):
        sessions.carry_out(session)
    sessions.world.later(120_000)
    sessions.carry_out(session)
    assert sessions.status(session) == "completed", sessions.reason(session)
    assert [one.recheck for one in sessions.engine.queries.ledger(session).items] == [False, True]
    assert (calls, starts(repo)) == (["loop~1[2]/do"] * 2, 1)
