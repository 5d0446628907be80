"""A worktree is set to a snapshot of another folder, whatever interrupts that."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import pytest
from pydantic import JsonValue

from app.core.folders import OwnFolder
from app.core.program import Action
from tests.unit.workers.folders.repositories import git, make_repository
from tests.waiting import wait_until
from workers.attempt.workspace_step import carry_out
from workers.folders.snapshots import SnapshotLost, Worktree
from workers.registry.agents import AgentBook
from workers.task import BodyTask

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def state(folder: Path) -> dict[str, tuple[str, bool]]:
    """Each file with its text and whether it may be run, and each link with its target."""
    found: dict[str, tuple[str, bool]] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = (f"-> {path.readlink()}", False)
        elif path.is_file() and ".git" not in name.split("/") and path.name != "ignored":
            found[name] = (path.read_bytes().decode(), os.access(path, os.X_OK))
    return found


class Restoring:
    """A folder with a snapshot, and a new worktree of its repository."""

    def __init__(self, tmp_path: Path, prefix: str = "") -> None:
        self.repo = make_repository(tmp_path / "repo")
        self.shelf, self.earlier = tmp_path / "new" / "work", tmp_path / "old" / "work"
        folder = self.repo / prefix
        (folder / "deep" / "er").mkdir(parents=True)
        self.added = tmp_path / "added"
        self.added.write_bytes(b"crlf\r\n")
        shutil.copy(self.added, folder / "deep" / "er" / "added")
        (folder / "run.sh").write_text("true\n")
        (folder / "run.sh").chmod(0o755)
        (folder / "link").symlink_to("run.sh")
        (folder / "was-a-file").mkdir()
        (folder / "was-a-file" / "inside").write_text("x")
        self.digest = str(Worktree(folder, self.earlier).snapshot())
        self.wanted = state(folder)
        self.path = tmp_path / "tree"
        git(self.repo, "reset", "-q", "--hard")
        git(self.repo, "clean", "-q", "-f", "-d")
        (folder / "was-a-file").write_text("in the commit from which the worktree starts\n")
        (folder / "gone.txt").write_text("in it, too\n")
        git(self.repo, "add", "-A")
        git(self.repo, "commit", "-qm", "second")
        git(self.repo, "worktree", "add", "-q", str(self.path))
        self.folder = self.path / prefix

    @property
    def tree(self) -> Worktree:
        return Worktree(self.folder, self.shelf)

    def restore(self) -> None:
        self.tree.restore(self.digest, self.earlier)


@pytest.mark.parametrize("prefix", ["", "sub"])
def test_folder_is_as_it_was_and_the_index_is_not_touched(tmp_path: Path, prefix: str) -> None:
    one = Restoring(tmp_path, prefix)
    index = git(one.path, "ls-files", "--stage")
    (one.folder / "ignored").write_text("left alone")
    one.restore()
    assert state(one.folder) == one.wanted
    assert (one.folder / "ignored").read_text() == "left alone"
    assert git(one.path, "ls-files", "--stage") == index
    assert one.tree.snapshot() == one.digest
    if prefix:
        assert (one.path / "two.txt").read_text() == "two.txt\n"


def test_snapshot_stays_when_that_of_the_other_session_is_deleted(tmp_path: Path) -> None:
    one = Restoring(tmp_path)
    one.restore()
    shutil.rmtree(one.earlier)
    tree = one.tree
    assert tree.knows(one.digest)
    (one.folder / "more").write_text("more\n")
    patch = tree.patch(one.digest, tree.snapshot())
    assert patch is not None
    assert "+++ b/more" in patch
    git(one.path, "add", "-A")
    git(one.path, "commit", "-qm", "work")
    assert git(one.path, "fsck", "--connectivity-only") == ""


def test_restore_is_repeated_after_an_end_at_each_call_of_git(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, real, calls = Restoring(tmp_path), shutil.which("git"), tmp_path / "calls"
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho >> {calls}\n'
        f'if test $(wc -l < {calls}) -eq "$(cat {tmp_path}/at)"; then kill -9 $$; fi\n'
        f'exec {real} "$@"\n'
    )  # fmt: skip
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    for at in range(1, 30):
        calls.write_text("")
        (tmp_path / "at").write_text(str(at))
        try:
            one.restore()
        except SnapshotLost:
            (one.folder / "half").write_text("written when it was killed")
            (tmp_path / "at").write_text("0")
            one.restore()
            assert state(one.folder) == one.wanted
            continue
        assert at > 5, "it calls git at least so often"
        return
    pytest.fail("it calls git without end")


@pytest.mark.parametrize("what", ["all", "one file"])
def test_lost_objects_are_reported(tmp_path: Path, what: str) -> None:
    one = Restoring(tmp_path)
    if what == "all":
        shutil.rmtree(one.earlier)
    else:
        name = git(one.repo, "hash-object", "--no-filters", str(one.added))
        (object_,) = one.earlier.glob(f"*/objects/{name[:2]}/{name[2:]}")
        object_.unlink()
    with pytest.raises(SnapshotLost):
        one.restore()


def test_folder_that_left_git_is_reported(tmp_path: Path) -> None:
    one = Restoring(tmp_path)
    (one.path / ".git").unlink()
    with pytest.raises(SnapshotLost, match="no longer stored here"):
        one.restore()


class Asked(threading.Event):
    """A cancellation that is never made, and says when somebody waits and asks for it."""

    def __init__(self) -> None:
        super().__init__()
        self.was_asked = threading.Event()

    def is_set(self) -> bool:
        self.was_asked.set()
        return super().is_set()


def test_second_step_that_opens_a_folder_waits_for_the_first(tmp_path: Path) -> None:
    one, root, spill = Restoring(tmp_path), tmp_path / "worktrees", tmp_path / "spill"
    shutil.copytree(one.earlier, spill / "01d01d01" / "work")
    own = OwnFolder(str(root.resolve()), str(one.repo))
    prepared, go, outcomes = tmp_path / "prepared", tmp_path / "go", list[str]()
    tree = one.digest.removeprefix("git:")
    inputs: dict[str, JsonValue] = {
        "do": "open", "origin": str(one.repo), "prefix": "",
        "prepare": f"echo x >> '{prepared}'; until test -e '{go}'; do sleep 0.01; done",
        "state": {"session": "01d01d01", "tree": tree, "step": "do", "at_ms": 0},
    }  # fmt: skip

    def open_folder(step: str, cancel: threading.Event) -> None:
        task = BodyTask(
            session="5e551046", address=step, action=Action.WORKSPACE, iteration=1, attempt=1,
            inputs=inputs, cwd=Path(own.cwd("5e551046")), spill=spill / "5e551046" / step,
            timeout_s=30.0, url="", mint=str, agents=AgentBook(agents={}), default_agent=None,
            worktrees=root,
        )  # fmt: skip
        outcomes.append(carry_out(task, cancel).word)

    first = threading.Thread(target=open_folder, args=("workspace", threading.Event()))
    first.start()
    wait_until(prepared.exists)
    asked = Asked()
    second = threading.Thread(target=open_folder, args=("check", asked))
    second.start()
    assert asked.was_asked.wait(timeout=20)
    go.touch()
    for opening in (first, second):
        opening.join(timeout=30)
    assert outcomes == ["succeeded", "succeeded"]
    assert prepared.read_text() == "x\n"
    assert state(Path(own.path("5e551046"))) == one.wanted
