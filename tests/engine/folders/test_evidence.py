"""On what the acceptance of work is based: files, checks, and what a person should know."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from app.security import signatures
from leadhand.cli.render.result_text import loop_summary
from leadhand.models.views.result import Evidence
from tests.engine.folders.sessions import Sessions
from tests.unit.workers.folders.repositories import git, make_repository

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    repo = make_repository(tmp_path / "repo")
    git(repo, "add", "-A")
    git(repo, "commit", "-qm", "second")
    return repo


def evidence(
    sessions: Sessions, repo: Path, command: str, *checkers: str, **more: object
) -> Evidence:
    session = sessions.submit(repo, **{"doer": {"command": command}, "checkers": checkers, **more})
    found = sessions.engine.queries.result(session).evidence
    assert found is not None, sessions.engine.queries.session(session)
    return found


@pytest.mark.parametrize("worktree", [True, False])
def test_files_of_all_iterations_and_the_judged_tree(
    sessions: Sessions, repo: Path, *, worktree: bool
) -> None:
    found = evidence(
        sessions, repo, "test -e a && touch tests.py conftest.py; touch a; mkdir -p tests;"
        " echo x > tests/new.py", "test -e conftest.py", worktree=worktree,
    )  # fmt: skip
    assert found.files is not None
    assert (found.files.count, found.files.files) == (
        4, ["a", "conftest.py", "tests.py", "tests/new.py"]
    )  # fmt: skip
    assert (found.tests_changed, found.checker_changed) == (["tests/new.py"], ["conftest.py"])
    (check,) = found.checks
    assert (check.name, check.verdict) == ("test", "accept")
    assert str(check.digest).startswith("git:")
    assert found.notes == [
        "the doer changed tests: tests/new.py",
        "the doer changed what configures checks: conftest.py",
    ]


def test_acceptance_without_a_change_is_named(sessions: Sessions, repo: Path) -> None:
    found = evidence(sessions, repo, "true", "true")
    assert found.notes == [
        "accepted, but nothing was changed",
        "true was green before, so it cannot tell whether anything was done",
    ]
    session = sessions.submit(repo, doer={"command": "true"}, checkers=["true"])
    lines = list(loop_summary(sessions.engine.queries.result(session)))
    assert "evidence: 0 files changed; true accept (green before)" in lines
    assert "note: accepted, but nothing was changed" in lines


def test_acceptance_without_a_check_names_the_person(sessions: Sessions, repo: Path) -> None:
    given = {"doer": {"command": "touch a"}, "checkers": ["false"], "max_iterations": 1}
    session = sessions.submit(repo, **given)
    assert sessions.engine.queries.session(session).status == "failed"
    sessions.engine.skips.skip(session, "loop~1[1]/check.false", reason="by hand", author="ada")
    sessions.carry_out(session)
    found = sessions.engine.queries.result(session).evidence
    assert found is not None
    assert found.notes == ["accepted without a check: false was skipped by ada: by hand"]


def test_folder_that_was_not_compared_says_why(store_url: str, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "b").write_text("more than nothing")
    sessions = Sessions(store_url, tmp_path, copy_max=1)
    found = evidence(sessions, folder, "touch a", "test -e a")
    sessions.attempts.close()
    assert (found.files, found.not_compared) == (None, "slow")
    why = "what was changed is not known: its folder is too large, or took too long to read"
    assert found.notes == [why]


@pytest.mark.parametrize(
    ("name", "tracked"), [("out", False), ("out/sub", True), ("node_modules/sub", False)]
)
def test_folder_that_its_repository_ignores_is_compared(
    sessions: Sessions, repo: Path, name: str, *, tracked: bool
) -> None:
    (repo / ".gitignore").write_text("/out/\n")
    (repo / name).mkdir(parents=True)
    if tracked:
        (repo / name / "kept").write_text("kept\n")
        git(repo, "add", "-f", f"{name}/kept")
    found = evidence(sessions, repo / name, "echo x > a; echo y >> kept", "test -e a")
    assert found.files is not None
    assert (found.files.files, found.not_compared) == (["a", "kept"], None)


def test_snapshots_that_another_host_has_are_named(
    sessions: Sessions, repo: Path, tmp_path: Path
) -> None:
    """A worker of the same place on another host has another folder of its own."""
    elsewhere = f"echo x > b; mv {tmp_path}/spill/*/work {tmp_path}/elsewhere"
    found = evidence(sessions, repo, "echo x > a", elsewhere, baseline=False)
    assert (found.files, found.not_compared) == (None, "other_host")
    why = "the snapshots of its folder are on another host, or were deleted"
    assert f"what was changed is not known: {why}" in found.notes


def test_green_before_the_work_and_counts_are_told_apart(sessions: Sessions, repo: Path) -> None:
    tap = "echo '1..2'; echo 'ok 1'; echo 'ok 2 # skip'"
    found = evidence(sessions, repo, "touch a", f"{tap}", "test -e a")
    first, second = found.checks
    assert (found.baseline[first.name], found.baseline[second.name]) == ("green", "red")
    assert f"{first.name} was green before, so it cannot tell whether anything was done" in (
        found.notes
    )


def test_what_a_check_makes_before_the_work_is_not_the_doers(
    sessions: Sessions, repo: Path
) -> None:
    phases = [
        {"name": "one", "task": "t", "checkers": ["test -e a"]},
        {"name": "two", "task": "t", "checkers": ["touch junk; test -e b"]},
    ]
    session = sessions.submit_document({
        "kind": "workflow", "name": "w", "cwd": str(repo), "phases": phases,
        "doer": {"command": "test -e a && touch b; touch a"},
    })  # fmt: skip
    found = sessions.engine.queries.result(session).evidence
    assert found is not None
    assert found.files is not None
    assert found.files.files == ["a", "b"]
    assert found.baseline == {"test": "red", "touch": "red"}
    assert sessions.warnings(session) == [
        "files changed while checks ran before the work, and now count as the folder's: junk"
    ]


def test_check_before_the_work_may_read_and_not_exit(
    sessions: Sessions, repo: Path, tmp_path: Path
) -> None:
    checker = f"echo $LEADHAND_TOKEN >> {tmp_path}/tokens; test -e a"
    sessions.submit(repo, doer={"command": "touch a"}, checkers=[checker])
    tokens = (tmp_path / "tokens").read_text().split()
    callers = [signatures.verify(token, secret="s") for token in tokens]
    assert [caller.scopes for caller in callers] == [("read",), signatures.BODY_SCOPES]


def test_work_that_was_not_accepted_has_no_evidence(sessions: Sessions, repo: Path) -> None:
    session = sessions.submit(
        repo, doer={"command": "true"}, checkers=["false"], max_iterations=1
    )  # fmt: skip
    assert sessions.engine.queries.result(session).evidence is None


@pytest.mark.parametrize(
    ("checker", "further", "end"),
    [
        ("true", None, ""),
        ("git add a; git -c user.name=a -c user.email=a@b commit -qm x", None, ""),
        ("touch probe", None, "that was judged (tree"),
        ("true", "isolated", "its folder cannot be compared with the work: other_host"),
        ("true", "clean", "its folder cannot be set to the work: its files are no longer stored"),
    ],
)
def test_work_that_another_host_has_recorded_is_accepted_as_it_is_or_not_at_all(
    sessions: Sessions, repo: Path, tmp_path: Path, checker: str, further: str | None, end: str
) -> None:
    """The worktree is shared by the hosts of a place, and the snapshots of the doer are not."""
    moves = f"{checker}; mv {tmp_path}/spill/*/work {tmp_path}/elsewhere"
    checkers: list[object] = [{"name": "moves", "command": moves}]
    if further:
        checkers.append({"name": "next", "command": "true", further: True})
    session = sessions.submit(
        repo, doer={"command": "echo work > a"}, checkers=checkers, worktree=True, baseline=False
    )
    view = sessions.engine.queries.session(session)
    assert (view.status == "completed") == (end == ""), view.reason
    reason, texts = sessions.engine.queries.result(session).reason, list[str]()
    while reason is not None:
        texts.append(reason.text)
        reason = reason.beneath
    assert end in "\n".join(texts)
    if end == "":
        assert git(repo, "show", f"leadhand/{session}:a") == "work"
        found = sessions.engine.queries.result(session).evidence
        assert found is not None
        assert found.not_compared == "other_host"
