"""Lesson 13: child sessions.

A doer starts sessions of its own with the same commands. They are children of its session: the doer
waits for them and reads how they ended, and they end with their parent.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client
from leadhand.loop import spawn_and_run
from tests.fundamentals.conftest import Terminal

HELPER = (
    "leadhand spawn 'write notes' --doer 'echo hello > notes.txt' --checker 'test -f notes.txt'"
)


def test_a_doer_has_a_part_of_its_work_done_by_a_child(client: Client, folder: Path) -> None:
    result = spawn_and_run("Lead", "cat notes.txt", doer=HELPER, cwd=folder, client=client)

    assert result.verdict == "accept"
    leader, helper = client.tree(result.session_id).items
    assert helper.parent == leader.id
    assert (helper.title, helper.status, helper.depth) == ("write notes", "completed", 1)


def test_a_doer_reads_that_its_child_failed(client: Client, folder: Path) -> None:
    fails = "leadhand spawn 'try' --doer true --checker false --max-iterations 1"

    result = spawn_and_run("Lead", "grep 3 code", doer=f"{fails}; echo $? > code", cwd=folder,
                           client=client)  # fmt: skip

    assert result.verdict == "accept"


def test_the_command_line_shows_the_tree(terminal: Terminal) -> None:
    ended = terminal(f'leadhand spawn Lead --doer "{HELPER}" --checker true --json')

    tree = terminal(f"leadhand tree {ended.json()['session_id']}")

    first, second = tree.out.splitlines()[:2]
    assert first.startswith("[Lead (")
    assert second.startswith("  [write notes (")
