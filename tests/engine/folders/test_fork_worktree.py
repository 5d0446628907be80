"""A fork works in a git worktree of its own, at the state that the other session has recorded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from app.errors import InvalidDocument
from tests.engine.folders.sessions import DOER, Sessions
from tests.unit.workers.folders.repositories import git, make_repository, user_state
from workers.attempt import own_folder_step
from workers.git.own_folders import Home

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
IN_USERS_FOLDER = {"one.txt": "staged\n", "untracked": "mine\n", "sub/three.txt": "sub/three.txt\n"}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repo")


def files(folder: Path) -> dict[str, str]:
    """All files, without those of git and the ignored one."""
    found = (path for path in folder.rglob("*") if path.is_file() and ".git" not in path.parts)
    texts = {str(path.relative_to(folder)): path.read_text() for path in found}
    return {
        name: text for name, text in texts.items() if name not in (".git", "ignored", ".gitignore")
    }


@pytest.mark.parametrize("last", ["workspace", "loop~2[1]/check.test"])
def test_fork_begins_with_the_folder_as_it_was_at_the_point(
    sessions: Sessions, repo: Path, last: str
) -> None:
    session = sessions.submit(repo)
    assert sessions.status(session) == "completed"
    git(repo, "commit", "-qam", "the user goes on")
    (repo / "one.txt").write_text("and on\n")
    before, kept = user_state(repo), files(repo)
    fork = sessions.fork(session, "loop[1]/do", last=last)
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    assert (user_state(repo), files(repo)) == (before, kept)
    folder = sessions.folder(fork)
    assert files(folder) == {
        **IN_USERS_FOLDER, "turn0": "", "turn1": "", "turn2": "", "log": "0\n1\n2\n",
    }  # fmt: skip
    first, committed = git(folder, "rev-parse", "HEAD~1", "HEAD").split()
    assert first == git(repo, "rev-parse", "main~1"), "it starts from the commit of that time"
    assert git(folder, "status", "--porcelain") == ""
    assert git(repo, "rev-parse", f"leadhand/{fork}") == committed
    steps = {one.address: one.state for one in sessions.engine.queries.steps(fork, limit=99).items}
    assert (steps["workspace"], steps["keep"]) == ("succeeded", "succeeded")
    assert sessions.warnings(fork) == []


@pytest.mark.parametrize("prefix", ["", "sub"])
@pytest.mark.parametrize("last", ["workspace", "loop~2[1]/check.beside"])
def test_fork_after_a_doer_has_its_work_judged_and_committed(
    sessions: Sessions, repo: Path, last: str, prefix: str
) -> None:
    """And not what its checkers write; isolated and clean ones run on it."""
    command = "test ! -e probe && test -e turn0 && touch probe"
    alone = [{"name": kind, "command": command, kind: True} for kind in ("isolated", "clean")]
    checkers = [{"name": "beside", "command": "touch probe; echo mutant >> log"}, *alone]
    session = sessions.submit(repo / prefix, worktree=True, checkers=checkers)
    fork = sessions.fork(session, "loop[1]/do", last=last)
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    assert [one["verdict"] for one in sessions.engine.queries.ledger(fork).items[-1].checks] == [
        "accept"
    ] * 3
    changed = git(repo, "diff", "--name-only", f"main..leadhand/{fork}").splitlines()
    assert {Path(one).name for one in changed} >= {"log", "turn0"}
    assert "probe" not in {Path(one).name for one in changed}
    (log,) = (one for one in changed if Path(one).name == "log")
    assert git(repo, "show", f"leadhand/{fork}:{log}") == "0"


def test_fork_has_the_by_products_of_its_document(sessions: Sessions, repo: Path) -> None:
    twice = "test $(wc -l < log) -ge 2"
    session = sessions.submit(repo, worktree=True, checkers=[twice], leave_out=["turn*"])
    fork = sessions.fork(session, "loop[1]/do", last="workspace")
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    changed = git(repo, "diff", "--name-only", f"main..leadhand/{fork}").splitlines()
    assert "log" in changed
    assert [one for one in changed if one.startswith("turn")] == []


def test_fork_in_a_subfolder_leaves_the_rest_of_the_repository(
    sessions: Sessions, repo: Path
) -> None:
    session = sessions.submit(repo / "sub")
    (repo / "sub" / "three.txt").write_text("the user goes on\n")
    git(repo, "commit", "-qam", "the user goes on")
    fork = sessions.fork(session, "loop[2]/do")
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    folder = sessions.folder(fork)
    assert folder.name == "sub"
    assert files(folder) == {
        "three.txt": "sub/three.txt\n", "turn0": "", "turn1": "", "turn2": "", "log": "0\n1\n2\n",
    }  # fmt: skip
    assert (folder.parent / "two.txt").read_text() == "two.txt\n"


def test_forks_are_forked_too(sessions: Sessions, repo: Path) -> None:
    session = sessions.submit(repo)
    first = sessions.fork(session, "loop[2]/do")
    shutil.rmtree(repo.parent / "spill" / session)  # the fork has its own snapshots
    for after, log in (("loop~1[1]/do", "0\n1\n2\n"), ("loop~2[3]/do", "0\n1\n2\n")):
        fork = sessions.fork(first, after)
        assert sessions.status(fork) == "completed", (after, sessions.reason(fork))
        assert (sessions.folder(fork) / "log").read_text() == log
        assert files(sessions.folder(fork)) == files(sessions.folder(first))
        assert sessions.folder(fork) != sessions.folder(first)
        assert sessions.warnings(fork) == []


def test_session_in_a_worktree_is_forked_into_another_one(sessions: Sessions, repo: Path) -> None:
    session = sessions.submit(
        repo,
        doer={"command": f"{DOER}; echo $n > requirements.txt"},  # for which it would be prepared
        worktree={"copy": ["ignored"], "prepare": "echo x >> prepared"},
    )
    assert sessions.status(session) == "completed", sessions.reason(session)
    base = git(repo, "rev-parse", "HEAD")
    git(repo, "commit", "-qam", "the user goes on")
    shutil.rmtree(repo / ".git" / "logs")  # the worktree of the session says where it began
    before = files(sessions.folder(session))
    with pytest.raises(InvalidDocument, match="its fork gets another; leave it out"):
        sessions.fork(session, "loop[1]/do", as_is=True)
    fork = sessions.fork(session, "loop[1]/do")
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    folder = sessions.folder(fork)
    assert files(sessions.folder(session)) == before
    assert git(folder, "rev-parse", "HEAD~1") == base
    assert (folder / "ignored").read_text() == "mine too\n"
    # Once in the other session, whose file is part of the state, and once here.
    assert (folder / "prepared").read_text() == "x\nx\n"
    assert (folder / "log").read_text() == "0\n1\n2\n"


@pytest.mark.parametrize("worktree", [False, True])
def test_fork_of_a_session_in_no_repository_works_in_a_copy_at_the_recorded_state(
    sessions: Sessions, tmp_path: Path, worktree: bool
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "two.txt").write_text("two\n")
    session = sessions.submit(plain, worktree=worktree)
    before = files(sessions.folder(session))
    fork = sessions.fork(session, "loop[1]/do")
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    assert sessions.folder(fork) not in (plain, sessions.folder(session))
    assert files(sessions.folder(session)) == before == files(sessions.folder(fork))


def test_fork_without_a_recorded_state_names_the_way_out(store_url: str, tmp_path: Path) -> None:
    sessions, plain = Sessions(store_url, tmp_path, copy_max=0), tmp_path / "plain"
    plain.mkdir()
    (plain / "large").write_text("for no bytes at all")
    session = sessions.submit(plain)
    with pytest.raises(InvalidDocument, match=r"recorded without git.*--folder as-is"):
        sessions.fork(session, "loop[1]/do")
    fork = sessions.fork(session, "loop[1]/do", as_is=True)
    assert sessions.folder(fork) == plain
    sessions.attempts.close()


def test_lost_snapshots_fail_the_fork_with_the_way_out(sessions: Sessions, repo: Path) -> None:
    session = sessions.submit(repo)
    shutil.rmtree(repo.parent / "spill" / session)
    for last in ("workspace", "loop~2[1]/check.test"):
        fork = sessions.fork(session, "loop[1]/do", last=last)
        assert sessions.status(fork) == "failed"
        why = f"the folder as session {session} had it at loop~1[1]/do cannot be restored"
        assert why in sessions.reason(fork)
        assert "--folder as-is" in sessions.reason(fork)
    assert not (repo / "turn3").exists()


def test_opening_that_is_killed_at_its_end_is_done_again(
    sessions: Sessions, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sessions.submit(repo, worktree={"prepare": "echo x >> prepared"})

    def die(_: Home) -> None:
        raise OSError("killed before it could say that the folder is open")

    with monkeypatch.context() as patched:
        patched.setattr(own_folder_step, "mark_opened", die)
        fork = sessions.fork(session, "loop[1]/do", last="loop~2[1]/check.test")
    assert sessions.status(fork) == "failed"
    sessions.engine.control.apply(fork, "resume")
    sessions.carry_out(fork)
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    assert (sessions.folder(fork) / "prepared").read_text() == "x\nx\n"


def test_items_that_are_done_are_in_the_folder_of_the_fork_and_not_repeated(
    sessions: Sessions, repo: Path, tmp_path: Path
) -> None:
    """The list is in the program, so that it starts behind the step that makes the folder."""
    marks = 'for i in a1 b2 c3; do case "$1" in *$i*) echo $i | tee -a pages;; esac; done'
    script = f'{marks}; case "$1" in *b2*) test -e {tmp_path / "online"};; esac'
    command = ["sh", "-c", script, "sh", "{prompt}"]
    (tmp_path / "agents.toml").write_text(f"[agents.reader]\ncommand = {json.dumps(command)}\n")
    read = {"name": "read", "tool": "agent:reader", "for_each": ["a1", "b2", "c3"], "at_once": 1}
    read["arguments"] = {"prompt": "${item}"}
    session = sessions.submit_document({"kind": "graph", "cwd": str(repo), "steps": [read]})
    assert sessions.status(session) == "failed"
    (tmp_path / "online").touch()
    fork = sessions.fork(session, None)
    assert sessions.status(fork) == "completed", sessions.reason(fork)
    assert files(sessions.folder(fork))["pages"] == "a1\nb2\nc3\n"
    assert files(repo)["pages"] == "a1\nb2\n"
    assert sessions.engine.queries.result(fork).results == {"read": ["a1", "b2", "c3"]}
