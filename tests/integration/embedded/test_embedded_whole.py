"""The embedded stack as users get it: our own API, our own worker, and a doer that runs."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import psutil
import pytest

from leadhand.client.client import Client
from leadhand.local.connect import Connection, ensure
from leadhand.settings import environment
from tests.integration.embedded.test_embedded import end, tree
from tests.processes import runs, words
from tests.waiting import wait_until


@pytest.fixture
def folder(home: Path):
    yield home.parent
    end(home)


def join(folder: Path, *, lease_s: int = 2) -> Connection:
    env = {name: value for name, value in environment().items() if "LEADHAND" not in name}
    ours = {"LEADHAND_CONCURRENCY": "2", "LEADHAND_LEASE_S": str(lease_s)}
    ours["LEADHAND_LINGER"] = "0.2"
    return ensure(folder / ".leadhand", env=env | ours)


def submit(connection: Connection, doer: str, *, worktree: bool = False) -> str:
    document = {
        "kind": "loop",
        "task": "work",
        "doer": {"command": doer},
        "checkers": [{"command": "true"}],
        "cwd": str(connection.home.parent),
        "worktree": worktree,
    }
    with Client(connection.url, connection.token) as client:
        return client.submit(document).id


def named(family: list[psutil.Process], word: str) -> list[psutil.Process]:
    return [process for process in family if word in words(process)]


def test_detached_session_is_carried_to_its_end_and_then_the_stack_ends(folder: Path):
    connection = join(folder)
    submit(connection, "sleep 1; echo done > made")
    connection.close()
    wait_until(lambda: not (folder / ".leadhand" / "run.json").exists(), timeout=25)
    assert (folder / "made").read_text() == "done\n"


def test_bodies_and_what_is_applied_have_the_umask_of_the_command(folder: Path, monkeypatch):
    """That of each caller; without one, that of the command which started the services."""
    before = os.umask(0o027)
    try:
        connection = join(folder)
    finally:
        os.umask(before)
    monkeypatch.setenv("LEADHAND_HOME", str(connection.home))
    (folder / "masks.py").write_text(MASKS)
    checker = {"callable": "masks:check", "quick": True}
    with Client(connection.url, connection.token) as bare:
        assert applied(bare, folder, "first", checker) == ["0027", "0027", "640", "750"]
    for name, umask, seen in (
        ("second", 0o002, ["0002", "0002", "664", "775"]),
        ("third", 0o077, ["0077", "0077", "600", "700"]),
    ):
        os.umask(umask)
        try:
            with Client() as own:
                assert applied(own, folder, name, checker) == seen
        finally:
            os.umask(before)
    connection.close()


#: The umask of a quick function, which shares its process with other calls.
MASKS = """\
import os

def check(context):
    umask = os.umask(0o22)
    os.umask(umask)
    return {"verdict": "accept", "feedback": f"{umask:04o}"}
"""


def applied(client: Client, folder: Path, name: str, checker: dict[str, object]) -> list[str]:
    """The umasks of a doer and a checker, and the modes of a file and a folder brought home."""
    document = {
        "kind": "loop", "task": "work", "checkers": [checker], "cwd": str(folder),
        "doer": {"command": f"mkdir {name}; cd {name}; umask > mask; echo x > made"},
        "worktree": True, "baseline": False,
    }  # fmt: skip
    session = client.submit(document).id
    wait_until(lambda: client.session(session).status == "completed", timeout=30)
    applying = client.apply(session).session
    wait_until(lambda: client.session(applying).status == "completed", timeout=30)
    (entry,) = client.ledger(session).items
    (check,) = entry.checks
    made = folder / name / "made"
    modes = [f"{stat.S_IMODE(one.stat().st_mode):o}" for one in (made, made.parent)]
    return [(folder / name / "mask").read_text().strip(), str(check["feedback"]), *modes]


@pytest.mark.slow
def test_killed_supervisor_takes_everything_with_it_and_the_session_goes_on_later(folder: Path):
    connection = join(folder, lease_s=600)  # too long to wait for
    session = submit(connection, "echo x >> starts; test -e go || sleep 601")
    wait_until(lambda: named(tree(connection.home), "601"))
    family = tree(connection.home)
    family[0].kill()
    wait_until(lambda: not any(map(runs, family)), timeout=15)
    (folder / "go").touch()
    again = join(folder, lease_s=600)
    with Client(again.url, again.token) as client:
        wait_until(lambda: client.session(session).status == "completed", timeout=20)
    assert (folder / "starts").read_text() == "x\nx\n"
    connection.close()
    again.close()
