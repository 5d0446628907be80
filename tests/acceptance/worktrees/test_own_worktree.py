"""Sessions with --worktree: the user's folder stays as it is until `leadhand apply`."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.project import Project
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.slow,
    pytest.mark.timeout(200),
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

#: Works in two iterations, so that the second diff has the work of both.
DOER = "if test -e a.txt; then echo b > b.txt; else echo a > a.txt; fi"


def spawn(project: Project, folder: Path, *more: str) -> str:
    ended = project.leadhand(
        "spawn", "Write", "--worktree", "--cwd", str(folder), "--doer", DOER,
        "--checker", "test -e b.txt", "--json", *more, timeout=100,
    )  # fmt: skip
    assert ended.code == 0, (ended.out, ended.err)
    return str(ended.json()["session_id"])


def test_worktree_of_a_loop(project: Project, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    before = user_state(repo)
    session = spawn(project, repo)
    assert user_state(repo) == before
    shown = project.leadhand("show", session, "--json").json()["session"]
    own = shown["worktree"]
    assert (own["kind"], own["branch"], own["origin"]) == (
        "worktree", f"leadhand/{session}", str(repo)
    )  # fmt: skip
    assert any("3 uncommitted changes are not in the worktree" in one for one in shown["warnings"])
    diff = project.leadhand("show", session, "--diff").out
    assert (diff.count("+++ b/a.txt"), diff.count("+++ b/b.txt")) == (1, 1), diff
    listed = project.leadhand("worktree", "list", session).out
    assert f"leadhand/{session}" in listed
    (repo / "b.txt").write_text("mine\n")
    refused = project.leadhand("apply", session)
    assert refused.code == 3
    assert refused.out.startswith("not applied: nothing was changed: b.txt would be"), refused
    (repo / "b.txt").unlink()
    assert user_state(repo) == before
    applied = project.leadhand("apply", session, "--json")
    assert (applied.code, applied.json()["applied"]) == (0, True), applied
    assert (repo / "b.txt").read_text() == "b\n"
    assert applied.json()["recheck"]["state"] == "same"
    shown = project.leadhand("show", session).out
    assert "main was fast-forwarded" in shown
    assert "your uncommitted changes were not checked with it: one.txt, two.txt" in shown
    assert project.leadhand("worktree", "clean", session).code == 0
    assert not Path(own["folder"]).exists()
    assert "cleaned" in project.leadhand("worktree", "list", session).out
    assert project.leadhand("apply", session).code == 1


def test_apply_behind_a_held_folder_names_what_it_waits_for_within_five_seconds(
    project: Project, tmp_path: Path
) -> None:
    repo = make_repository(tmp_path / "held")
    git(repo, "reset", "-q", "--hard")
    session = spawn(project, repo)
    holder = project.detached(
        "--cwd", str(repo), "--doer", "touch started; until test -e go; do sleep 0.1; done",
        "--checker", "true",
    )  # fmt: skip
    wait_until((repo / "started").exists)
    (repo / "mine.txt").write_text("mine\n")
    git(repo, "add", "mine.txt")
    git(repo, "commit", "-qm", "mine")
    before = {one["id"] for one in ls(project)}
    applies = project.begin("apply", session, "--recheck", "none")
    wait_until(lambda: {one["id"] for one in ls(project)} - before)
    began = time.monotonic()
    assert applies.stderr is not None
    for line in applies.stderr:
        if f"is held by session {holder}" in line:
            break
    else:
        pytest.fail("it ended without a word")
    assert time.monotonic() - began < 5
    (repo / "go").touch()
    ended = project.ended(applies, timeout=60)
    assert (ended.code, "unchecked: no checker was to run again" in ended.out) == (0, True), ended
    assert "evidence: 2 files changed (a.txt, b.txt); test accept (red before)" in ended.out


def ls(project: Project) -> list[dict[str, Any]]:
    with project.api() as client:
        found: list[dict[str, Any]] = client.get("/v1/sessions?limit=100").json()["items"]
    return found


def test_fork_works_in_a_worktree_at_the_recorded_state(project: Project, tmp_path: Path) -> None:
    repo = make_repository(tmp_path / "repo")
    ended = project.leadhand(
        "spawn", "Write", "--cwd", str(repo), "--doer", DOER, "--checker", "test -e b.txt",
        "--json", timeout=100,
    )  # fmt: skip
    session = str(ended.json()["session_id"])
    (repo / "b.txt").write_text("changed since\n")
    before = user_state(repo)
    made = project.leadhand("fork", session, "--after", "loop[1]/do")
    assert (made.code, "leadhand apply" in made.out) == (0, True), made
    fork = made.out.split()[1]
    assert project.leadhand("wait", fork, timeout=100).code == 0
    assert user_state(repo) == before
    shown = project.leadhand("show", fork, "--json").json()["session"]
    folder = Path(shown["cwd"])
    assert (folder / "b.txt").read_text() == "b\n"
    assert (folder / "untracked").read_text() == "mine\n"
    assert shown["warnings"] == []
    for name in ("a.txt", "b.txt", "untracked"):
        (repo / name).unlink()
    git(repo, "reset", "-q", "--hard")
    assert project.leadhand("apply", fork).code == 0
    assert (repo / "b.txt").read_text() == "b\n"
    again = project.leadhand("fork", fork, "--after", "loop~2[2]/do", "--folder", "as-is")
    assert (again.code, "--folder: the session has a folder of its own" in again.err) == (1, True)


def test_copy_of_a_plain_folder(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    (folder / "given").write_text("mine")
    session = spawn(project, folder)
    assert [one.name for one in folder.iterdir()] == ["given"]
    (folder / "b.txt").write_text("mine too")
    conflict = project.leadhand("apply", session)
    assert (conflict.code, "nothing was changed: b.txt changed" in conflict.out) == (3, True)
    (folder / "b.txt").unlink()
    assert "2 written, 0 removed" in project.leadhand("apply", session).out
    assert sorted(one.name for one in folder.iterdir()) == ["a.txt", "b.txt", "given"]
    assert project.leadhand("worktree", "clean", session).code == 0


def test_workflow_in_a_prepared_worktree(project: Project, tmp_path: Path) -> None:
    """One that the repository's leadhand.toml describes: with an ignored file, and prepared."""
    repo = make_repository(tmp_path / "repo")
    (repo / "leadhand.toml").write_text(
        '[worktree]\ncopy = ["ignored"]\nprepare = "cp ignored done.txt"\n'
    )
    before = user_state(repo)
    file = tmp_path / "wf.py"
    file.write_text(
        "from leadhand.workflow import Workflow\n"
        f"wf = Workflow('w', doer='true', cwd={str(repo)!r})\n"
        "wf.phase('workspace', 'Write', 'test -e done.txt')\n"
        "wf.run()\n"
    )
    arguments = ("workflow", str(file), "--worktree", "--cwd", str(repo), "--json")
    refused = project.leadhand(*arguments)
    assert (refused.code, f"`leadhand trust {repo}`" in refused.err) == (1, True), refused
    assert project.leadhand("trust", str(repo), "--yes").code == 0
    ended = project.leadhand(*arguments, timeout=100)
    assert ended.code == 0, (ended.out, ended.err)
    assert user_state(repo) == before
    session = ended.json()["session_id"]
    assert git(repo, "diff", "--name-only", f"main...leadhand/{session}") == "done.txt"
    assert git(repo, "show", f"leadhand/{session}:done.txt") == "mine too"
    (repo / "leadhand.toml").write_text('[worktree]\ncopy = ["../elsewhere"]\n')
    refused = project.leadhand(*arguments)
    assert (refused.code, "is not within the repository" in refused.err) == (1, True), refused


def test_folder_of_a_deleted_session_is_named_until_its_work_is_merged(
    project: Project, tmp_path: Path
) -> None:
    repo = make_repository(tmp_path / "repo")
    git(repo, "reset", "-q", "--hard")
    session, other = spawn(project, repo), spawn(project, repo)
    listed = project.leadhand("worktree", "list", "--json").json()["items"]
    assert {one["session"] for one in listed} >= {session, other}  # and those of other tests
    refused = project.leadhand("rm", session)
    assert (refused.code, "commits that 'main' has not" in refused.out) == (3, True), refused
    assert project.leadhand("show", session).code == 0
    forced = project.leadhand("rm", session, "--force")
    assert (forced.code, f"session {session} is deleted" in forced.out) == (0, True), forced
    found = project.leadhand("fsck", "--repair", timeout=90)
    assert (found.code, "worktree_orphan" in found.out) == (3, True), found
    assert git(repo, "show", f"leadhand/{session}:b.txt") == "b"
    git(repo, "merge", "-q", f"leadhand/{session}")
    git(repo, "merge", "-q", f"leadhand/{other}")
    mended = project.leadhand("fsck", "--repair", timeout=90)
    assert (mended.code, "fixed   worktree_orphan" in mended.out) == (0, True), mended
    assert project.leadhand("rm", other).code == 0
    assert project.leadhand("worktree", "list").out.strip() == "no folders"
    assert len(git(repo, "worktree", "list").splitlines()) == 1
    assert git(repo, "branch", "--list", "leadhand/*") == ""
