"""Lock files of a git that was killed: Leadhand removes its own, and waits for and names others."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.workers.folders.repositories import ENV, git, user_state
from tests.unit.workers.folders.session_homes import BRANCH, OneHome
from tests.waiting import wait_until
from workers.git import git as runner
from workers.git import worktrees
from workers.git.applying import fast_forward
from workers.git.git import Cancelled, Git, WorkspaceRefused

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")

#: The lock files of the user's repository without which the work cannot be applied or removed.
NEEDED = ("index.lock", "HEAD.lock", "ORIG_HEAD.lock", "refs/heads/main.lock", "packed-refs.lock")
#: All others that git makes in a repository or in the folder of a worktree.
OTHERS = (
    "FETCH_HEAD.lock", "MERGE_HEAD.lock", "MERGE_MSG.lock", "MERGE_RR.lock", "AUTO_MERGE.lock",
    "CHERRY_PICK_HEAD.lock", "REBASE_HEAD.lock", "config.lock", "config.worktree.lock",
    "packed-refs.new", "shallow.lock", "gc.pid", "gc.pid.lock", "logs/HEAD.lock",
    "info/sparse-checkout.lock", "objects/info/commit-graph.lock",
    "objects/info/commit-graphs/commit-graph-chain.lock", "objects/maintenance.lock",
    "objects/pack/multi-pack-index.lock", "refs/stash.lock", "refs/heads/leadhand.lock",
)  # fmt: skip
OWN_BRANCH = (f"refs/heads/{BRANCH}.lock", f"logs/refs/heads/{BRANCH}.lock")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for milliseconds where a user waits for seconds."""
    monkeypatch.setattr(runner, "LOCK_WAIT_S", 0.3)
    monkeypatch.setattr(runner, "STALE_S", 0.05)
    monkeypatch.setattr(runner, "_POLL_S", 0.01)


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    return OneHome.clean_repository(tmp_path)


def leave(folder: Path, name: str) -> Path:
    """Leave a lock file, as a git that is killed does."""
    lock = folder / name
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    return lock


def shared(one: OneHome) -> Path:
    return one.origin / ".git"


def own(one: OneHome) -> Path:
    return shared(one) / "worktrees" / "tree"


def life_of(one: OneHome) -> Iterator[None]:
    """Make the worktree of a session, commit its work, apply it and remove the folder."""
    one.open()
    one.write("new.txt", "work\n")
    yield
    worktrees.check(one.git, one.home.path, BRANCH)
    one.close()
    yield
    assert "fast-forwarded" in one.apply()
    yield
    kept = one.discard()
    if kept:
        raise WorkspaceRefused(kept)
    assert git(one.origin, "status", "--porcelain") == ""
    assert (one.origin / "new.txt").read_text() == "work\n"


@pytest.mark.parametrize("name", NEEDED)
def test_lock_left_in_the_users_repository_is_named_with_gits_advice(
    one: OneHome, name: str
) -> None:
    lock = leave(shared(one), name)
    life, before = life_of(one), user_state(one.origin)
    next(life)
    next(life)
    with pytest.raises(WorkspaceRefused) as error:
        [None for _ in life]
    assert "was killed and left its lock: make sure that no git runs" in str(error.value)
    assert shlex.join(["rm", str(lock)]) in str(error.value)
    if name != "packed-refs.lock":
        assert user_state(one.origin) == before
    if name == "index.lock":
        with pytest.raises(WorkspaceRefused, match="make sure that no git runs"):
            fast_forward(one.git, BRANCH)
    lock.unlink()
    assert "main" in one.apply()
    assert one.discard() == ""


def test_other_locks_in_the_users_repository_stop_nothing_and_are_left_alone(one: OneHome) -> None:
    locks = [leave(shared(one), name) for name in OTHERS]
    assert [None for _ in life_of(one)]
    assert not one.home.path.exists()
    assert [lock for lock in locks if not lock.exists()] == []


def test_locks_left_in_leadhands_own_worktree_and_of_its_branch_are_removed(one: OneHome) -> None:
    leave(shared(one), OWN_BRANCH[0])
    life = life_of(one)
    next(life)
    locks = [leave(own(one), name) for name in (*NEEDED, *OTHERS)]
    locks += [leave(shared(one), name) for name in OWN_BRANCH]
    next(life)
    left = [one.name for one in locks if one.exists() and "objects" not in one.parts]
    assert left == ["packed-refs.new", "gc.pid"]
    assert [None for _ in life]


@pytest.mark.parametrize("name", ["HEAD.lock", "index.lock", f"../../{OWN_BRANCH[0]}"])
def test_lock_that_appears_while_the_work_is_committed_is_removed(one: OneHome, name: str) -> None:
    """A kill between two calls of git."""
    one.open()
    one.write("new.txt", "work\n")
    lock = leave(own(one), name)
    worktrees.keep(one.git, one.home.path, "Do it")
    assert not lock.exists()


def test_doer_finds_no_lock_of_the_attempt_before(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work\n")
    for name in ("index.lock", "HEAD.lock", "modules/sub/index.lock"):
        leave(own(one), name)
    leave(shared(one), f"refs/heads/{BRANCH}.lock")
    worktrees.check(one.git, one.home.path, BRANCH)
    git(one.home.cwd, "add", "-A")
    git(one.home.cwd, "commit", "-qm", "The doer's own commit")


class Holder:
    """A git of somebody else, which is at work in a folder and has a lock."""

    def __init__(self, folder: Path, lock: Path, program: Path) -> None:
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(lock))}\nread line\n")
        program.chmod(0o755)
        self._process = subprocess.Popen([program], cwd=folder, stdin=subprocess.PIPE, env=ENV)
        wait_until(lock.exists)

    @property
    def pid(self) -> int:
        return self._process.pid

    def end(self) -> None:
        self._process.communicate(b"\n", timeout=20)


def test_lock_that_a_live_git_holds_is_never_removed(one: OneHome, tmp_path: Path) -> None:
    one.open()
    one.write("new.txt", "work\n")
    for folder, lock in (
        (one.home.path, own(one) / "HEAD.lock"),
        (one.origin, shared(one) / f"refs/heads/{BRANCH}.lock"),
    ):
        holder = Holder(folder, lock, tmp_path / "bin" / "git")
        with pytest.raises(WorkspaceRefused, match=f"process {holder.pid}") as error:
            one.close()
        assert str(lock) in str(error.value)
        worktrees.check(one.git, one.home.path, BRANCH)
        assert lock.exists()
        holder.end()
        one.close()
        assert not lock.exists()
        one.write("new.txt", "more work\n")


def test_program_that_has_the_lock_open_is_alive_too(one: OneHome) -> None:
    one.open()
    one.write("new.txt", "work\n")
    lock = own(one) / "HEAD.lock"
    with lock.open("w"), pytest.raises(WorkspaceRefused, match=f"process {os.getpid()}"):
        one.close()
    one.close()


def test_lock_of_somebody_else_is_waited_for(
    one: OneHome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(runner, "LOCK_WAIT_S", 20.0)
    one.open()
    one.write("new.txt", "work\n")
    one.close()
    lock = shared(one) / "HEAD.lock"
    holder = Holder(one.origin, lock, tmp_path / "bin" / "git")

    def work() -> None:
        holder.end()
        lock.unlink()

    ending = threading.Timer(0.2, work)
    ending.start()
    assert "main was fast-forwarded" in one.apply()
    ending.join()


def test_wait_for_a_lock_ends_when_the_step_is_cancelled(
    one: OneHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "LOCK_WAIT_S", 60.0)
    leave(shared(one), "packed-refs.lock")
    cancel = threading.Event()
    git_ = Git(one.origin, cancel)
    threading.Timer(0.1, cancel.set).start()
    with pytest.raises(Cancelled):
        git_("pack-refs", "--all")


KILL = (
    '#!/bin/sh\necho >> "$CALLS"\n'
    'if test "$(wc -l < "$CALLS")" -eq "$(cat "$CALLS.at")"; then\n'
    '  for one in "$OWN/index" "$OWN/HEAD" "$OWN/ORIG_HEAD" "$BRANCH"; do\n'
    '    test -d "${one%/*}" && touch "$one.lock"\n'
    '  done; kill -9 $$; fi\nexec "$GIT" "$@"\n'
)


@pytest.mark.slow
def test_session_goes_on_after_git_was_killed_with_its_locks_at_each_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, program = tmp_path / "calls", tmp_path / "bin" / "git"
    program.parent.mkdir()
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    for at in range(1, 100):
        one = OneHome.clean_repository(tmp_path / str(at))
        calls.write_text("")
        calls.with_name("calls.at").write_text(str(at))
        found = {
            "$GIT": str(shutil.which("git")), "$CALLS": str(calls), "$OWN": str(own(one)),
            "$BRANCH": f"{shared(one)}/refs/heads/{BRANCH}",
        }  # fmt: skip
        script = KILL
        for name, value in found.items():
            script = script.replace(name, value)
        program.write_text(script)
        program.chmod(0o755)
        with monkeypatch.context() as patched:
            patched.setenv("PATH", path)
            killed = _is_killed(one)
        assert git(one.origin, "show", f"{BRANCH}:new.txt") == "work"
        assert not list(shared(one).rglob("*.lock"))
        assert killed == (calls.read_text().count("\n") >= at)
        if not killed:
            assert at > 15, "it calls git at least so often"
            return
    pytest.fail("it calls git without end")


def _is_killed(one: OneHome) -> bool:
    """Make the folder and commit the work; whether a git was killed, after which it is repeated."""

    def work() -> None:
        one.open()
        one.write("new.txt", "work\n")
        worktrees.check(one.git, one.home.path, BRANCH)
        one.close()

    try:
        work()
    except WorkspaceRefused:
        work()
        return True
    return False
