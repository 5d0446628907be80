"""Reruns: a red command runs again on the same work, and a flaky one abstains."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from app.core.outcomes import CheckRun, Outcome
from app.core.program import Action
from leadhand.models.documents import Checker, LoopDocument
from tests.unit.workers.bodies.running import checking
from tests.unit.workers.bodies.test_counted_tests import PYTEST
from workers.checkers.combine import combine
from workers.task import Check

#: Ends with the next digit of `plan`, and leaves a line for each run.
PLANNED = 'echo x >> ../runs; exit $(cut -c"$(wc -l < ../runs)" plan)'


@pytest.fixture
def check(body, tmp_path: Path):
    def run(plan: str, command: str = PLANNED, **checker) -> Outcome:
        (tmp_path / "work/plan").write_text(plan)
        (tmp_path / "runs").write_text("")
        outcome: Outcome = body(Action.CHECK, checking({"command": command, **checker}))
        return outcome

    return run


@pytest.mark.parametrize(
    ("plan", "reruns", "runs", "verdict", "decided_by"),
    [
        ("0", 3, 1, "accept", "exit_code"),
        ("1", 0, 1, "retry", "exit_code"),
        ("111", 2, 3, "retry", "exit_code"),
        ("100", 2, 3, "retry", "flaky"),
        ("101", 2, 3, "retry", "flaky"),
    ],
)
def test_red_command_runs_again_to_the_last_rerun(
    check, tmp_path, plan, reruns, runs, verdict, decided_by
) -> None:
    outcome = check(plan, reruns=reruns)
    assert (outcome.verdict, outcome.decided_by) == (verdict, decided_by)
    assert (tmp_path / "runs").read_text().count("x") == runs
    if runs > 1:
        assert [str(run.exit_code) for run in outcome.runs] == list(plan)
    assert (outcome.flaky == ()) is (decided_by == "flaky")
    assert outcome.is_proven_flaky is (plan == "101")


def test_flaky_check_names_the_tests_that_flipped(check, tmp_path: Path) -> None:
    tests = (
        "import pathlib\n"
        "def test_flips():\n"
        "    runs = pathlib.Path('../runs')\n"
        "    runs.write_text(runs.read_text() + 'x')\n"
        "    assert len(runs.read_text()) != 1\n"
        "def test_fails_once_more(): assert pathlib.Path('../runs').read_text() != 'x'\n"
        "def test_stays(): pass\n"
    )
    (tmp_path / "work/test_a.py").write_text(tests)
    outcome = check("", PYTEST, reruns=1, timeout_s=40)
    assert outcome.flaky == ("test_a::test_fails_once_more", "test_a::test_flips")
    assert outcome.text.startswith(
        "Flaky: 1 of 2 runs on the same work passed: test_a::test_fails_once_more,"
        " test_a::test_flips did not end the same way.\n\n"
    )
    assert [run.failed for run in outcome.runs] == [outcome.flaky[::-1], ()]


def test_run_that_changed_the_folder_is_the_last(check, tmp_path: Path) -> None:
    outcome = check("100", f"echo made > made.txt; {PLANNED}", reruns=2)
    assert (outcome.verdict, outcome.decided_by, outcome.runs) == ("retry", "exit_code", None)
    assert outcome.text.startswith("It did not run again, as the folder had changed meanwhile.")
    assert (tmp_path / "runs").read_text() == "x\n"


def test_check_that_is_cancelled_between_its_runs_has_no_verdict(body, tmp_path: Path) -> None:
    cancel = threading.Event()
    given = checking({"command": "touch started; sleep 30", "reruns": 1})
    threading.Thread(target=_cancel, args=(tmp_path / "work/started", cancel)).start()
    outcome = body(Action.CHECK, given, cancel=cancel)
    assert outcome.word == "failed"


def _cancel(started: Path, cancel: threading.Event) -> None:
    from tests.waiting import wait_until

    wait_until(started.exists)
    cancel.set()


ACCEPTS = Outcome(word="succeeded", verdict="accept")
REFUSES = Outcome(word="succeeded", verdict="retry", text="no")
FLAKY = Outcome(
    word="succeeded", verdict="retry", text="Flaky: a::b flips.", decided_by="flaky",
    flaky=("a::b",), runs=(CheckRun(verdict="retry"), CheckRun(verdict="accept")),
)  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "others", "verdict"),
    [
        ("all", [ACCEPTS], "accept"),
        ("all", [ACCEPTS, REFUSES], "retry"),
        ("any", [REFUSES], "retry"),
        ("any", [ACCEPTS, REFUSES], "accept"),
        (2, [ACCEPTS], "accept"),
        ("all", [], "retry"),
        ("any", [FLAKY], "retry"),
    ],
)
def test_flaky_check_abstains_and_the_others_decide(rule, others, verdict) -> None:
    outcomes = [FLAKY, *others]
    found = combine(rule, [Check(name=f"c{n}", outcome=one) for n, one in enumerate(outcomes)])
    assert found.verdict == verdict
    assert found.checks[0].model_dump()["flaky"] == ("a::b",)
    if verdict == "retry" and REFUSES not in others:
        assert "Flaky: a::b flips." in found.feedback


def test_warning_names_a_flaky_check(body) -> None:
    checks = [
        {"name": "tests", "outcome": FLAKY.model_dump()},
        {"name": "lint", "outcome": ACCEPTS.model_dump()},
    ]
    outcome = body(Action.JUDGE, {"rule": "all", "checks": checks})
    assert (outcome.verdict, outcome.warning) == ("accept", "tests: Flaky: a::b flips.")


def test_each_run_of_a_checker_may_take_its_timeout() -> None:
    from app.compiler.workflow import compile_loop

    checker = {"command": "true", "reruns": 2, "timeout_s": 10}
    document = LoopDocument.model_validate({"task": "t", "checkers": [checker]})
    assert compile_loop(document).step("loop~1[1]/check.true").timeout_s == 30
    with pytest.raises(ValueError, match="belong to a command"):
        Checker.model_validate({"prompt": "good?", "reruns": 1})
