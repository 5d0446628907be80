"""The work of a doer is committed from its recorded tree, whatever is in the worktree by then."""

from __future__ import annotations

import os
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.workers.folders.repositories import ENV, git
from tests.unit.workers.folders.session_homes import BRANCH, OneHome
from workers.git.git import WorkspaceRefused

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def one(tmp_path: Path) -> OneHome:
    return OneHome.clean_repository(tmp_path)


def do(one: OneHome) -> None:
    """Work as a doer does: change, add and remove files."""
    one.write("one.txt", "done\n")
    one.write("new.txt", "new\n")
    one.write("run.sh", "true\n").chmod(0o755)
    (one.home.cwd / "two.txt").unlink()


def check(one: OneHome) -> None:
    """Change the work as a checker does that is no checker."""
    one.write("one.txt", "done\nmutant\n")
    one.write("probe.txt", "")
    (one.home.cwd / "new.txt").unlink()
    git(one.home.cwd, "add", "-A")


DONE = "M\tone.txt\nA\tnew.txt\nA\trun.sh\nD\ttwo.txt"
LEFT = {"M one.txt", "?? probe.txt", "D new.txt"}


def changes(one: OneHome) -> set[str]:
    return {*git(one.origin, "diff", "--name-status", f"main..{BRANCH}").splitlines()}


def status(one: OneHome) -> set[str]:
    return {line.strip() for line in git(one.home.cwd, "status", "--porcelain").splitlines()}


def test_branch_has_the_work_of_the_doer_alone(one: OneHome) -> None:
    (one.origin / "link").symlink_to("one.txt")
    git(one.origin, "add", "link")
    git(one.origin, "commit", "-qm", "link")
    for name in ("symlinks", "fileMode"):  # as a doer of an earlier session may set them
        git(one.origin, "config", f"core.{name}", "false")
    one.open()
    do(one)
    before = one.home.cwd.stat().st_mtime_ns
    work = one.work()
    assert one.home.cwd.stat().st_mtime_ns == before  # what is probed there is work after a kill
    check(one)
    commit = one.close("Do it", work)
    assert git(one.origin, "rev-parse", BRANCH) == commit
    assert changes(one) == {*DONE.splitlines()}
    assert git(one.origin, "show", f"{BRANCH}:one.txt") == "done"
    assert git(one.origin, "ls-tree", BRANCH, "run.sh").startswith("100755")
    assert status(one) == LEFT
    shutil.rmtree(one.snapshots)
    assert git(one.origin, "fsck", "--connectivity-only", "--no-dangling") == ""


def test_what_else_is_in_the_worktree_is_never_committed_to_the_branch(one: OneHome) -> None:
    one.open()
    do(one)
    work = one.work()
    check(one)
    commit = one.close("Do it", work)
    replace = f"git replace $(git rev-parse {commit}:one.txt) {EVIL}"
    subprocess.run(replace, cwd=one.home.cwd, check=True, env=ENV, shell=True)
    assert one.apply() == f"main was fast-forwarded to {commit[:12]}"
    assert (one.origin / "one.txt").read_text() == "done\n"
    assert "it has uncommitted changes" in one.discard()
    assert one.discard(force=True) == ""
    assert git(one.origin, "log", "-1", "--format=%s", f"{BRANCH}-unfinished") == (
        "leadhand: unfinished"
    )
    assert git(one.origin, "show", f"{BRANCH}-unfinished:one.txt") == "done\nmutant"


def test_commit_is_made_once_after_a_kill_at_each_call_of_git(
    one: OneHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one.open()
    do(one)
    work = one.work()
    check(one)
    monkeypatch.setattr("workers.git.git.STALE_S", 0.0)
    for _ in killed_at_each_call(tmp_path, monkeypatch):
        try:
            one.close("Do it", work)
        except WorkspaceRefused:
            continue
        break
    monkeypatch.undo()
    commit = one.close("Do it", work)
    assert git(one.origin, "rev-list", "--count", f"main..{BRANCH}") == "1"
    assert git(one.origin, "rev-parse", f"{commit}^{{tree}}") == work.tree
    assert status(one) == LEFT


def killed_at_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Kill git at its first call, then at its second one, and so on."""
    real, calls, at = shutil.which("git"), tmp_path / "calls", tmp_path / "at"
    fake = tmp_path / "bin" / "git"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\necho >> {calls}\n'
        f'if test $(wc -l < {calls}) -eq "$(cat {at})"; then kill -9 $$; fi\n'
        f'exec {real} "$@"\n'
    )  # fmt: skip
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    for number in range(1, 60):
        calls.write_text("")
        at.write_text(str(number))
        yield number
    pytest.fail("it calls git without end")


#: A setting that converts nothing.
_NONE = ("core.safecrlf", "true")


@pytest.mark.parametrize(
    ("attributes", "own", "setting", "content", "stored"),
    [
        (
            "*.big filter=large\n",
            "",
            ("filter.large.clean", "tr a-z A-Z"),
            b"big \xff\n",
            b"BIG \xff\n",
        ),
        ("", "", ("core.autocrlf", "input"), b"a\r\nb\r\n", b"a\nb\n"),
        ("*.big text\n", "", _NONE, b"a\r\nb\r\n", b"a\nb\n"),
        ("*.big text=auto\n", "", ("core.fileMode", "false"), b"a\r\n", b"a\n"),
        ("*.big ident\n", "", _NONE, b"$Id: x $\n", b"$Id$\n"),
        ("*.big working-tree-encoding=UTF-16BE\n", "", _NONE, b"\0a\0\n", b"a\n"),
        ("*.big working-tree-encoding=UTF-16BE\n", "", _NONE, b"odd", b"odd"),  # it is not UTF-16
        ("* text\n", "*.big -text\n", _NONE, b"a\r\n", b"a\r\n"),
        ("*.big -text\n", "*.big text\n", _NONE, b"a\r\n", b"a\n"),
    ],
)
def test_files_are_stored_as_git_add_stores_them(
    one: OneHome,
    attributes: str,
    own: str,
    setting: tuple[str, str],
    content: bytes,
    stored: bytes,
) -> None:
    """Snapshots run no filters of the repository, but its commits need them."""
    one.user_commits(".gitattributes", attributes)
    (one.origin / ".git" / "info" / "attributes").write_text(own)
    git(one.origin, "config", *setting)
    one.open()
    (one.home.cwd / "data.big").write_bytes(content)
    commit = one.close("Do it", one.work())
    shown = ["git", "cat-file", "blob", f"{commit}:data.big"]
    assert subprocess.run(shown, cwd=one.origin, check=True, capture_output=True).stdout == stored
    assert status(one) == set()


#: The id of another file.
EVIL = "$(echo evil | git hash-object -w --stdin)"


@pytest.mark.parametrize(
    ("tampers", "stored"),
    [
        ("git config filter.large.clean 'echo evil'", b"BIG\n"),
        ("git config filter.large.process false", b"big\n"),  # it cannot be unset: as judged
        ("git config filter.new.clean 'echo evil'", b"BIG\n"),
        ("echo '*.big filter=other' > $(git rev-parse --git-path info/attributes)", b"big\n"),
        ("git config core.autocrlf true", b"BIG\n"),
        ("git config core.safecrlf true", b"BIG\n"),
        (f"git replace $(git hash-object -w --no-filters data.big) {EVIL}", b"BIG\n"),
    ],
)
def test_filters_that_a_doer_sets_change_nothing_of_what_was_judged(
    one: OneHome, tampers: str, stored: bytes
) -> None:
    one.user_commits(".gitattributes", "*.big filter=large\n*.new filter=new\n")
    git(one.origin, "config", "filter.large.clean", "tr a-z A-Z")
    git(one.origin, "config", "filter.other.clean", "echo evil")
    one.open()
    one.work()  # before the doer
    one.write("data.big", "big\n")
    one.write("data.new", "lines\r\n")
    subprocess.run(tampers, cwd=one.home.cwd, check=True, env=ENV, shell=True)
    commit = one.close("Do it", one.work())
    shown = ["git", "cat-file", "--batch=%(objectsize)"]
    names = f"{commit}:data.big\n{commit}:data.new\n".encode()
    found = subprocess.run(shown, cwd=one.origin, check=True, capture_output=True, input=names)
    assert found.stdout == b"4\n" + stored + b"\n7\nlines\r\n\n"


def test_converted_file_whose_content_is_lost_is_not_committed_empty(one: OneHome) -> None:
    git(one.origin, "config", "core.autocrlf", "input")
    one.open()
    one.write("a.txt", "judged\r\n")
    work = one.work()
    lost = git(one.home.cwd, "hash-object", "--no-filters", "a.txt")
    (work.objects / lost[:2] / lost[2:]).unlink()
    with pytest.raises(WorkspaceRefused, match="unable to read"):
        one.close("Do it", work)


@pytest.mark.parametrize("where", ["repository", "snapshots", "base"])
def test_object_that_is_not_what_its_id_says_is_not_committed(one: OneHome, where: str) -> None:
    """Git writes no object that is there already, and reads it without a look at its id."""
    one.open()
    known = one.work().objects if where == "snapshots" else one.origin / ".git" / "objects"
    one.write("new.txt", "one.txt\n" if where == "base" else "judged\n")
    name = git(one.home.cwd, "hash-object", "new.txt")
    forged = known / name[:2] / name[2:]
    assert forged.exists() == (where == "base")
    forged.parent.mkdir(exist_ok=True)
    forged.unlink(missing_ok=True)
    forged.write_bytes(zlib.compress(b"blob 5\0evil\n"))
    work = one.work()
    with pytest.raises(WorkspaceRefused, match="not what their ids say"):
        one.close("Do it", work)
    assert changes(one) == set()
    assert not [*(one.origin / ".git" / "objects" / "pack").glob("*")]


def test_unfilled_submodule_stays(one: OneHome, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-qm", "first", "--allow-empty")
    git(one.origin, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner), "in")
    git(one.origin, "commit", "-qm", "with a submodule")
    one.open()
    do(one)
    one.close("Do it", one.work())
    assert changes(one) == {*DONE.splitlines()}
    assert status(one) == set()


def test_merge_in_progress_keeps_both_parents(one: OneHome) -> None:
    one.user_commits("theirs.txt", "theirs\n")
    theirs = git(one.origin, "rev-parse", "HEAD")
    git(one.origin, "reset", "-q", "--hard", "HEAD~1")
    one.open()
    git(one.home.cwd, "merge", "-q", "--no-commit", "--no-ff", theirs)
    commit = one.close("Merge", one.work())
    assert git(one.origin, "log", "-1", "--format=%P", commit).split()[1] == theirs
    assert status(one) == set()
