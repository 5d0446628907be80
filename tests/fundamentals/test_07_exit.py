"""Lesson 7: exit.

A doer or a checker that sees that this path will not work ends the whole session with
`leadhand exit REASON`. No further step runs, and whoever started the session reads the reason.
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client, Workflow
from leadhand.loop import spawn_and_run
from tests.fundamentals.conftest import Terminal


def test_a_checker_ends_the_workflow_with_a_reason(client: Client, folder: Path) -> None:
    workflow = Workflow("three", doer="true", cwd=folder)
    workflow.phase("plan", task="plan", checker="true")
    workflow.phase("write", task="write", checker="leadhand exit 'it needs another design'")
    workflow.phase("review", task="review", checker="true")

    results = workflow.run(client=client)

    assert list(results) == ["plan", "write"]
    assert results["write"].verdict == "exit"
    assert results["write"].exit_reason == "it needs another design"


def test_an_exit_is_not_a_failure_to_be_resumed(client: Client, folder: Path) -> None:
    result = spawn_and_run(
        "Use the library", "touch checked", doer="leadhand exit 'no such library'",
        cwd=folder, client=client, baseline=False,
    )  # fmt: skip

    session = client.session(result.session_id)
    assert session.status == "exited"
    assert session.reason is not None
    assert session.reason.text == "no such library"
    assert not (folder / "checked").exists()


def test_the_command_line_exits_with_code_2(terminal: Terminal) -> None:
    ended = terminal("leadhand spawn 'Try' --doer 'leadhand exit enough' --checker true --json")

    assert ended.code == 2
    assert ended.json()["exit_reason"] == "enough"
