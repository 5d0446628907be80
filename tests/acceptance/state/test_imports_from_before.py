"""Sessions of a `.leadhand` from before come to the user's services, by `leadhand import` alone."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from leadhand.local.bindings import forget_binding
from leadhand.local.user_state import imports_folder
from tests.acceptance.project import Project
from tests.acceptance.state.user import LONG, User
from tests.processes import kill
from tests.waiting import wait_until

pytestmark = [pytest.mark.acceptance, pytest.mark.slow, pytest.mark.timeout(180)]
SENTENCE = (
    "sessions from before are in ./.leadhand: `leadhand import` shows them and takes them over"
)
DOER = "echo run >> runs; while ! test -e go; do sleep 0.05; done"


class Before:
    """A folder that had services of its own, as in versions before, and a session at work."""

    def __init__(self, user: User, name: str = "one") -> None:
        self.user, self.project = user, user.project(name)
        self.old = self.project.folder / ".leadhand"
        current, self.project.state = self.project.state, self.old
        self.project.env["LEADHAND_HOME"] = str(self.old)
        self.session = self.project.detached("--doer", DOER, "--checker", "true")
        wait_until(lambda: self.runs, timeout=30)
        assert self.project.leadhand("down", timeout=LONG).code == 0
        del self.project.env["LEADHAND_HOME"]
        self.project.state = current

    @property
    def runs(self) -> int:
        return len(self.project.lines("runs"))

    def files(self) -> dict[str, bytes]:
        """What is in the old folder."""
        found = [path for path in self.old.rglob("*") if path.is_file()]
        return {str(path): path.read_bytes() for path in found}


@pytest.fixture
def before(user: User) -> Before:
    return Before(user)


def test_sessions_from_before_are_named_listed_and_imported_stopped(before: Before) -> None:
    one, was, runs = before.project, before.files(), before.runs
    listed = one.leadhand("ls", "--all", timeout=LONG)
    assert SENTENCE in listed.err
    assert before.session not in listed.out
    shown = one.leadhand("import", timeout=LONG)
    assert shown.code == 0, shown.err
    assert f"{before.session}  stopped" in shown.out
    assert f"would run: {DOER}" in shown.out
    assert "nothing was imported" in shown.out
    assert before.session not in one.leadhand("ls", "--all", timeout=LONG).out
    imported = one.leadhand("import", "--yes", timeout=LONG)
    assert imported.code == 0, imported.err
    assert "1 session imported" in imported.out
    listed = one.leadhand("ls", "--json", timeout=LONG)
    assert SENTENCE not in listed.err
    [session] = listed.json()["items"]
    assert (session["id"], session["status"]) == (before.session, "stopped")
    assert before.files() == was
    assert before.runs == runs
    one.write("go", "")
    assert one.leadhand("resume", before.session, timeout=LONG).code == 0
    assert one.leadhand("wait", before.session, timeout=LONG).code == 0
    assert before.runs > runs
    assert "imported before" in one.leadhand("import", "--yes", timeout=LONG).out
    left = [path.suffix for path in imports_folder(one.env).iterdir()]
    assert sorted(left) == [".imported", ".lock"]


def test_only_the_named_sessions_are_imported(before: Before) -> None:
    one = before.project
    unknown = one.leadhand("import", "--session", "ffffffff", timeout=LONG)
    assert unknown.code != 0
    assert "'ffffffff' is not a session of this folder" in unknown.err
    one.env["LEADHAND_HOME"] = str(before.old)
    other = one.detached("--cwd", str(one.folder.parent), "--doer", "true", "--checker", "false")
    assert one.leadhand("down", timeout=LONG).code == 0
    del one.env["LEADHAND_HOME"]
    imported = one.leadhand("import", "-s", before.session, timeout=LONG)
    assert "1 session imported" in imported.out
    listed = one.leadhand("ls", "--all", timeout=LONG)
    assert SENTENCE in listed.err  # some are left
    assert before.session in listed.out
    assert other not in listed.out


def committed(before: Before, user: User) -> Project:
    """A clone of a repository with the old folder in it."""
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for arguments in (("init", "-q"), ("add", "-A", "-f"), ("commit", "-q", "-m", "all of it")):
        subprocess.run(["git", *who, *arguments], cwd=before.project.folder, check=True)
    clone = user.home / "clone"
    subprocess.run(["git", "clone", "-q", before.project.folder, clone], check=True)
    return user.project("clone")


def test_a_committed_folder_needs_adopt(before: Before, user: User) -> None:
    clone, runs = committed(before, user), before.runs
    refused = clone.leadhand("import", "--yes", timeout=LONG)
    assert refused.code == 1
    assert "git tracks it, so others may have written it" in refused.err
    assert "`leadhand import --adopt`" in refused.err
    planted = clone.write("planted", f"#!/bin/sh\ntouch {user.home}/planted-ran\n")
    planted.chmod(0o755)
    clone.write(".leadhand/redis/server.json", f'{{"path": "{planted}", "kind": "Valkey"}}')
    shown = clone.leadhand("import", "--adopt", timeout=LONG)
    assert f"would run: {DOER}" in shown.out
    assert "nothing was imported" in shown.out
    imported = clone.leadhand("import", "--adopt", "--yes", timeout=LONG)
    assert imported.code == 0, imported.err
    listed = clone.leadhand("ls", "--all", "--json", timeout=LONG).json()["items"]
    assert [(one["id"], one["status"]) for one in listed] == [(before.session, "stopped")]
    assert before.runs == runs
    assert not (user.home / "planted-ran").exists()


def test_a_link_needs_adopt(before: Before, user: User) -> None:
    other = user.project("other")
    (other.folder / ".leadhand").symlink_to(before.old)
    forget_binding(before.old, before.project.env)
    refused = other.leadhand("import", "--yes", timeout=LONG)
    assert "it is a symbolic link" in refused.err
    assert "--adopt" in refused.err
    imported = other.leadhand("import", "--yes", "--adopt", timeout=LONG)
    assert "1 session imported" in imported.out


def test_a_killed_import_is_repeated(before: Before, user: User) -> None:
    one = before.project
    one.leadhand("ls", timeout=LONG)
    importing = one.begin("import", "--yes")
    copies = imports_folder(one.env)

    def is_opened() -> bool:
        return any((path / "run.json").exists() for path in copies.iterdir())

    wait_until(is_opened, timeout=LONG)
    importing.kill()
    importing.wait()
    imported = one.leadhand("import", "--yes", timeout=LONG)
    assert imported.code == 0, imported.err
    listed = one.leadhand("ls", "--json", timeout=LONG).json()["items"]
    assert [session["status"] for session in listed] == ["stopped"]
    assert [path for path in copies.iterdir() if path.is_dir()] == []


def test_services_that_still_run_are_not_copied(before: Before) -> None:
    one = before.project
    one.env["LEADHAND_HOME"] = str(before.old)
    one.leadhand("ls", timeout=LONG)
    del one.env["LEADHAND_HOME"]
    refused = one.leadhand("import", "--yes", timeout=LONG)
    assert refused.code == 1
    assert "runs the services of this folder" in refused.err
    one.env["LEADHAND_HOME"] = str(before.old)
    family = one.tree()
    one.leadhand("down", timeout=LONG)
    kill(family)


def test_a_folder_without_sessions_is_named(user: User) -> None:
    one = user.project("one")
    (one.folder / "empty").mkdir()
    assert "there is no .leadhand" in one.leadhand("import", timeout=LONG).out
    refused = one.leadhand("import", "empty", timeout=LONG)
    assert refused.code == 1
    assert "empty has no sessions" in refused.err
    assert not Path(one.folder / ".leadhand").exists()
    shutil.rmtree(one.folder / "empty")
