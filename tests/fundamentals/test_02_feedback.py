"""Lesson 2: feedback.

When a checker refuses the work, its output is the feedback. The doer runs again and finds the
feedback in its prompt, which it reads from standard input. The *ledger* keeps every iteration with
its verdict. When no iteration is left, the loop has failed.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client
from leadhand.loop import spawn_and_run
from tests.fundamentals.conftest import Terminal

#: Works only after it has read why the first attempt was refused.
LEARNS = (
    "if grep -q 'no poem yet'; then echo roses > poem.txt; fi; echo iteration $LEADHAND_ITERATION"
)
CHECKER = "test -f poem.txt || { echo no poem yet; exit 1; }"


def test_the_doer_reads_why_its_work_was_refused(client: Client, folder: Path) -> None:
    result = spawn_and_run("Write a poem", CHECKER, doer=LEARNS, cwd=folder, client=client)

    assert result.verdict == "accept"
    assert result.iterations == 2


def test_the_ledger_keeps_every_iteration(client: Client, folder: Path) -> None:
    result = spawn_and_run("Write a poem", CHECKER, doer=LEARNS, cwd=folder, client=client)

    first, second = client.ledger(result.session_id).items
    assert (first.verdict, first.work) == ("retry", "iteration 1")
    assert first.checks[0]["feedback"] == "no poem yet"
    assert (second.verdict, second.work) == ("accept", "iteration 2")


def test_a_loop_that_is_never_accepted_fails(terminal: Terminal) -> None:
    ended = terminal(
        "leadhand spawn 'Write a poem' --doer true --checker 'echo no; false' --max-iterations 2"
    )

    assert ended.code == 3
    assert "max_iterations" in ended.out
