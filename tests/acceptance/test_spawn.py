"""One command, one loop: real checkers refuse a first attempt, and accept the second."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acceptance.project import LEARNS, Project

pytestmark = pytest.mark.acceptance

#: Its first work adds wrongly and imports for nothing; feedback mends both.
DOER = """\
import pathlib
import sys

prompt = sys.stdin.read()
good = "def add(a, b):\\n    return a + b\\n"
bad = "import os\\n\\n\\ndef add(a, b):\\n    return a - b\\n"
mended = "assert -1 == 3" in prompt and "F401" in prompt
pathlib.Path("calc.py").write_text(good if mended else bad)
print("mended" if mended else "first try")
"""
TESTS = """\
from calc import add


def test_add():
    assert add(1, 2) == 3
"""


def ran_side_by_side(checks: list[dict[str, Any]]) -> bool:
    return bool(max(c["started_ms"] for c in checks) < min(c["ended_ms"] for c in checks))


@pytest.mark.timeout(60)  # two real runs of pytest, on services that start first
def test_two_real_checkers_refuse_the_first_attempt_and_accept_the_second(alone: Project):
    alone.write("doer.py", DOER)
    alone.write("calc.py", "")
    alone.write("test_calc.py", TESTS)
    ended = alone.leadhand(
        *("spawn", "make it pass", "--doer", "python doer.py"),
        *("--checker", "pytest -q", "--checker", "ruff check .", "--json"),
        timeout=50,
    )
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    result = json.loads(ended.out)
    assert len(result["session_id"]) == 8
    assert (result["verdict"], result["iterations"]) == ("accept", 2)
    assert (result["result_text"], result["exit_reason"]) == ("mended", "")
    first, second = result["history"]
    assert (first["verdict"], second["verdict"]) == ("retry", "accept")
    for entry in (first, second):
        assert [check["name"] for check in entry["checks"]] == ["pytest", "ruff"]
        assert ran_side_by_side(entry["checks"])
    assert [check["verdict"] for check in first["checks"]] == ["retry", "retry"]
    assert "assert -1 == 3" in first["checks"][0]["feedback"]
    assert "F401" in first["checks"][1]["feedback"]
    assert {check["verdict"] for check in second["checks"]} == {"accept"}


def test_in_a_pipe_the_progress_reads_as_plain_lines(project: Project):
    project.write("doer.py", LEARNS)
    ended = project.leadhand(
        *("spawn", "make it good", "--doer", "python3 doer.py", "--checker", "test -f good.txt")
    )
    assert ended.code == 0
    assert "\x1b" not in ended.out
    assert "retry" in ended.out
    assert "accept after 2 iterations" in ended.out


def test_a_second_command_joins_the_services_of_the_first(alone: Project):
    alone.detached("--doer", "true", "--checker", "true")
    run = alone.run
    (session,) = alone.sessions()
    assert alone.run == run
    assert alone.leadhand("wait", session["id"]).code == 0
    shown = alone.leadhand("show", session["id"], "--json").json()
    assert [entry["verdict"] for entry in shown["ledger"]] == ["accept"]
