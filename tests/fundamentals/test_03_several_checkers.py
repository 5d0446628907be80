"""Lesson 3: several checkers.

All checkers of a loop judge each iteration side by side. All of them must accept, unless the
loop's *rule* asks for fewer. A checker is a command, a Python function or an instruction to an
agent (`agent: ...`).
"""

from __future__ import annotations

from pathlib import Path

from leadhand import Client
from leadhand.loop import spawn_and_run

#: A function judges by what it returns: True, False, or a verdict with feedback.
CHECKS = """
from pathlib import Path

def ends_with_a_newline(work):
    text = Path("poem.txt").read_text()
    return True if text.endswith("\\n") else ("retry", "add a newline at the end")
"""


def test_every_checker_must_accept(client: Client, folder: Path) -> None:
    result = spawn_and_run(
        "Write a poem",
        ["test -f poem.txt", "grep -q roses poem.txt"],
        doer="echo violets > poem.txt",
        max_iterations=1,
        cwd=folder,
        client=client,
    )

    assert result.verdict == "max_iterations"
    (iteration,) = result.history
    assert [check["verdict"] for check in iteration["checks"]] == ["accept", "retry"]
    assert [one["name"] for one in result.missing] == ["grep"]


def test_a_rule_says_how_many_must_accept(client: Client, folder: Path) -> None:
    checkers = ["true", "false", "true"]

    for rule, verdict in (("all", "max_iterations"), (2, "accept"), ("any", "accept")):
        result = spawn_and_run(
            "Try", checkers, doer="true", rule=rule, max_iterations=1, cwd=folder, client=client
        )
        assert result.verdict == verdict


def test_a_python_function_judges(client: Client, folder: Path) -> None:
    """`module:function` is imported from the working folder, in a process of its own."""
    (folder / "checks.py").write_text(CHECKS)

    result = spawn_and_run(
        "Write a poem",
        "callable: checks:ends_with_a_newline",
        doer="if grep -q 'add a newline'; then echo roses; else printf roses; fi > poem.txt",
        cwd=folder,
        client=client,
    )

    assert result.verdict == "accept"
    assert result.history[0]["checks"][0]["feedback"] == "add a newline at the end"
