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


def test_bodies_and_what_is_applied_have_the_umask_of_the_command(folder: Path):
    """The services' own files are for their user only."""
    before = os.umask(0o027)
    try:
        connection = join(folder)
    finally:
        os.umask(before)
    with Client(connection.url, connection.token) as client:
        doer = "umask > mask; mkdir new; echo x > new/made"
        session = submit(connection, doer, worktree=True)
        wait_until(lambda: client.session(session).status == "completed", timeout=30)
        applying = client.apply(session).session
        wait_until(lambda: client.session(applying).status == "completed", timeout=30)
    assert (folder / "mask").read_text().strip() == "0027"
    made = folder / "new" / "made"
    assert [stat.S_IMODE(one.stat().st_mode) for one in (made, made.parent)] == [0o640, 0o750]
    connection.close()


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
