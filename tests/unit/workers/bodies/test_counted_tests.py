"""Command checkers: green means that tests ran."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from app.sessions.attempts import outcome_fields
from leadhand.models.verdicts import Counts
from tests.unit.workers.bodies.running import checking
from workers.processes.environment import with_pytest_report

#: Without plugins it starts in a fifth of the time.
PYTEST = f"PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 {sys.executable} -m pytest -p no:cacheprovider"
RED = "def test_it():\n    assert False\n"
GREEN = "def test_it():\n    assert True\n"
SKIPPED = "import pytest\npytest.skip('later', allow_module_level=True)\n"
ZERO = "def pytest_sessionfinish(session):\n    session.exitstatus = 0\n"


@pytest.fixture
def check(body, tmp_path: Path):
    """Run a command checker on files in the working folder."""

    def run(command: str, files: dict[str, str], **checker) -> Outcome:
        for name, text in files.items():
            (tmp_path / "work" / name).write_text(text)
        given = checking({"command": command, **checker})
        outcome: Outcome = body(Action.CHECK, given, timeout_s=50.0)
        return outcome

    return run


def counted(outcome: Outcome) -> tuple[object, ...]:
    counts = outcome.counts
    numbers = None if counts is None else (counts.passed, counts.failed, counts.skipped)
    return (outcome.verdict, outcome.decided_by, numbers)


def test_pytest_s_report_is_counted_and_not_mentioned(check, tmp_path: Path) -> None:
    files = {
        "test_a.py": "import pytest\n"
        "@pytest.mark.parametrize('n', [1, 2])\ndef test_n(n): pass\n"
        "@pytest.mark.skip\ndef test_s(): pass\n"
        "@pytest.mark.xfail\ndef test_x(): assert 0\n",
    }
    outcome = check(PYTEST, files)
    assert outcome.counts == Counts(passed=2, failed=0, skipped=2, collected=4)
    assert outcome_fields(outcome)["text"] == "2 passed, 2 skipped"
    assert "2 passed" in outcome.text
    assert "report.xml" not in outcome.text, "its path differs in each attempt"
    assert [path.name for path in (tmp_path / "spill").iterdir()] == ["result.md"]
    (tmp_path / "work/test_b.py").write_text(RED)
    assert counted(check(PYTEST, {})) == ("retry", "exit_code", (2, 1, 2))


def test_conftest_that_ends_the_process_before_its_report_is_no_accept(check) -> None:
    """A row of the table of issue 37: pytest prints `F` and ends with exit code 0."""
    ends = "import os\ndef pytest_runtest_teardown(item):\n    os._exit(0)\n"
    outcome = check(PYTEST, {"test_a.py": RED, "conftest.py": ends})
    assert outcome.exit_code == 0
    assert counted(outcome) == ("retry", "tests", None)
    assert outcome.text.startswith("The command exited with 0, but pytest's report is missing")
    assert check(PYTEST, {}, report="none").verdict == "accept"


def test_conftest_that_sets_the_exit_code_is_no_accept(check) -> None:
    outcome = check(PYTEST, {"test_a.py": RED, "conftest.py": ZERO})
    assert counted(outcome) == ("retry", "tests", (0, 1, 0))
    assert "1 of 1 tests failed: test_a::test_it." in outcome.text


@pytest.mark.parametrize(
    ("files", "numbers"),
    [
        ({"test_a.py": SKIPPED, "conftest.py": ZERO}, (0, 0, 1)),
        ({"test_a.py": "import pytest\n@pytest.mark.skip\ndef test_s(): pass\n"}, (0, 0, 1)),
        ({"test_a.py": "", "conftest.py": ZERO}, (0, 0, 0)),
    ],
)
def test_exit_code_0_without_a_test_that_ran_is_no_accept(check, files, numbers) -> None:
    """A row of the table of issue 37: a test module that is skipped whole."""
    outcome = check(PYTEST, files)
    assert counted(outcome) == ("retry", "tests", numbers)
    assert outcome.text.startswith("The command exited with 0, but no test ran: ")
    assert counted(check(PYTEST, files, allow_empty=True)) == ("accept", "exit_code", numbers)


def test_each_pytest_of_a_command_is_counted(check) -> None:
    files = {"test_a.py": GREEN, "test_b.py": GREEN, "test_c.py": SKIPPED}
    line = f"{PYTEST} test_a.py && {PYTEST} test_b.py && {PYTEST} test_c.py; true"
    assert counted(check(line, files)) == ("accept", "exit_code", (2, 0, 1))


def test_pytest_of_a_makefile_is_counted(check) -> None:
    """And fails the check although the exit code hides the failure."""
    files = {"Makefile": f"test:\n\t@{PYTEST} -q\n", "test_a.py": GREEN}
    assert counted(check("make -s test", files)) == ("accept", "exit_code", (1, 0, 0))
    hidden = check("make -s test", {"conftest.py": ZERO, "test_b.py": RED})
    assert counted(hidden) == ("retry", "tests", (1, 1, 0))


def test_pytest_that_a_test_runs_is_not_counted(check) -> None:
    inner = (
        "import subprocess, sys, time\n"
        "def test_outer():\n"
        "    time.sleep(0.01)\n"
        "    args = [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', 'inner.py']\n"
        "    assert subprocess.run(args).returncode == 1\n"
    )
    outcome = check(f"{PYTEST} test_outer.py", {"test_outer.py": inner, "inner.py": RED})
    assert counted(outcome) == ("accept", "exit_code", (1, 0, 0))


def test_program_that_wants_failing_tests_decides_by_its_exit_code(check) -> None:
    negated = check(f"! {PYTEST}", {"test_a.py": RED})
    assert counted(negated) == ("accept", "exit_code", (0, 1, 0))
    script = f"#!/bin/sh\nif {PYTEST} >/dev/null; then exit 1; fi\n"
    assert counted(check("sh must_fail", {"must_fail": script})) == (
        "accept", "exit_code", (0, 1, 0),
    )  # fmt: skip
    hidden = check(f"{PYTEST} || true", {})
    assert counted(hidden) == ("retry", "tests", (0, 1, 0))


def test_report_that_the_command_names_is_read_instead(check, tmp_path: Path) -> None:
    line = f"mkdir -p out && cd out && {PYTEST} --junitxml=r.xml ..; true"
    assert counted(check(line, {"test_a.py": GREEN})) == ("accept", "exit_code", (1, 0, 0))
    assert (tmp_path / "work/out/r.xml").is_file()
    (tmp_path / "work/conftest.py").write_text("import os\nos._exit(0)\n")
    outcome = check(line, {})
    assert counted(outcome) == ("retry", "tests", None), "the report is one of an earlier run"


def test_options_of_pytest_that_were_passed_are_kept(body, tmp_path: Path) -> None:
    from app.core.environment import SessionEnvironment

    (tmp_path / "work/test_a.py").write_text(GREEN)
    given = checking({"command": PYTEST})
    environment = SessionEnvironment(passed={"PYTEST_ADDOPTS": "--collect-only"})
    outcome = body(Action.CHECK, given, session_environment=environment)
    assert counted(outcome) == ("retry", "tests", (0, 0, 0))


@pytest.mark.parametrize("given", ["", "testenv.pass_env+=HOME"])
def test_tox_lets_the_report_pass_whatever_file_configures_it(given: str) -> None:
    """What tox makes of it was tried with tox 4.67, of which the tests have none."""
    found = with_pytest_report({"TOX_OVERRIDE": given} if given else {}, Path("/r"))
    overrides = found["TOX_OVERRIDE"].split(";")
    assert overrides[: bool(given)] == [given][: bool(given)]
    sections = ("testenv", "env_run_base", "tool.tox.env_run_base")
    assert {f"{one}.pass_env+=PYTEST_ADDOPTS" for one in sections} <= {*overrides}


def test_command_that_only_lists_tests_is_not_counted(check) -> None:
    assert counted(check(f"{PYTEST} --collect-only -q", {"test_a.py": GREEN})) == (
        "accept", "exit_code", None,
    )  # fmt: skip


def test_command_without_tests_is_not_counted(check) -> None:
    assert counted(check("true", {})) == ("accept", "exit_code", None)


def test_whole_output_of_another_runner_is_read(check, tmp_path: Path) -> None:
    noise = f"{sys.executable} -c \"print('\\n'.join(['x' * 99] * 2000))\""
    line = f"{noise}; echo '# tests 3'; echo '# pass 0'; echo '# fail 0'; {noise}"
    outcome = check(line, {})
    assert "# pass 0" not in outcome.text, "what is shown is cut"
    assert counted(outcome) == ("retry", "tests", (0, 0, 0))
    files = {"Makefile": "test:\n\t@cat out.tap\n", "out.tap": "1..2\nok 1 - a\nnot ok 2 - b\n"}
    assert counted(check("make test", files)) == ("retry", "tests", (1, 1, 0))
    assert counted(check("cat out.tap", {})) == ("accept", "exit_code", (1, 1, 0))
    forged = "import os\nos.write(1, b'1..1\\nok 1 - a\\n')\nos._exit(0)\n"
    assert counted(check(PYTEST, {"conftest.py": forged})) == ("retry", "tests", None)


JUNIT = '<testsuite tests="{n}">{cases}</testsuite>'
ONE = '<testcase classname="a" name="b"/>'


@pytest.mark.parametrize(
    ("written", "verdict", "numbers", "said"),
    [
        (JUNIT.format(n=1, cases=ONE), "accept", (1, 0, 0), ""),
        (JUNIT.format(n=0, cases=""), "retry", (0, 0, 0), "no test ran"),
        (
            JUNIT.format(n=1, cases='<testcase name="x"><failure/></testcase>'),
            "retry", (0, 1, 0), "1 of 1 tests failed: x.",
        ),
        (None, "retry", None, "out.xml is missing (there is none)"),
        ("<testsuite>", "retry", None, "out.xml is missing (it cannot be read: "),
        (
            '<!DOCTYPE x [<!ENTITY a "aaaa">]><testsuite>&a;</testsuite>',
            "retry", None, "it declares a document type",
        ),
    ],
)  # fmt: skip
def test_report_of_another_runner_is_read(check, written, verdict, numbers, said) -> None:
    line = "true" if written is None else "cp source.xml out.xml"
    outcome = check(line, {"source.xml": written or ""}, report="out.xml")
    rule = "exit_code" if verdict == "accept" else "tests"
    assert counted(outcome) == (verdict, rule, numbers)
    assert said in outcome.text


def test_report_that_is_no_file_is_not_waited_for(check) -> None:
    outcome = check("mkfifo out.xml", {}, report="out.xml")
    assert "out.xml is no file" in outcome.text


def test_reports_of_a_pattern_are_added(check) -> None:
    both = {"one.xml": JUNIT.format(n=1, cases=ONE), "two.xml": JUNIT.format(n=1, cases=ONE)}
    line = "mkdir -p r && cp one.xml two.xml r"
    assert counted(check(line, both, report="r/*.xml")) == ("accept", "exit_code", (2, 0, 0))
