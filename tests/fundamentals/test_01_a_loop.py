"""Lesson 1: a loop.

A *doer* works on a task in a folder. A *checker* judges the work. Leadhand runs the two in turns
until the checker accepts, and records what happened. Any program can be a doer or a checker: a
checker that is a command accepts by exit code 0.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client
from leadhand.loop import spawn_and_run
from tests.fundamentals.conftest import Terminal


def test_a_loop_ends_when_its_checker_accepts(client: Client, folder: Path) -> None:
    result = spawn_and_run(
        "Write good.txt",
        checker="test -f good.txt",
        doer="echo good > good.txt; echo I wrote it",
        cwd=folder,
        client=client,
    )

    assert result.verdict == "accept"
    assert result.iterations == 1
    assert result.result_text == "I wrote it"
    assert (folder / "good.txt").read_text() == "good\n"


def test_the_command_line_runs_the_same_loop(terminal: Terminal, folder: Path) -> None:
    ended = terminal(
        "leadhand spawn 'Write good.txt' --doer 'echo good > good.txt' --checker 'test -f good.txt'"
    )

    assert ended.code == 0
    assert "accept after 1 iteration" in ended.out
    assert (folder / "good.txt").exists()


def test_a_session_runs_in_the_background(client: Client, folder: Path) -> None:
    """Each run is a *session* with an id. The workers run it, whether or not you wait for it."""
    session = client.submit(
        {
            "kind": "loop",
            "task": "Write good.txt",
            "doer": {"command": "echo good > good.txt"},
            "checkers": ["test -f good.txt"],
            "cwd": str(folder),
        }
    )
    assert session.status == "active"

    assert client.wait(session.id).verdict == "accept"
    assert client.session(session.id).status == "completed"
