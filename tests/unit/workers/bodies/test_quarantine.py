"""Quarantined tests: their failures alone do not refuse the work."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from app.core.outcomes import Outcome
from app.core.program import Action
from tests.unit.workers.bodies.running import checking
from tests.unit.workers.bodies.test_counted_tests import PYTEST

TESTS = """
import pytest
def test_ok(): pass
@pytest.mark.parametrize("path", ["a/b", "c"])
def test_flips(path): assert path == "c"
class TestNet:
    def test_slow(self): assert 0
"""
TODAY = datetime.now(UTC).date()
#: A day that the worker's clock does not reach while the test runs.
LATER, PAST = (TODAY + timedelta(days=2)).isoformat(), (TODAY - timedelta(days=2)).isoformat()


@pytest.fixture
def check(body, tmp_path: Path):
    (tmp_path / "work/sub").mkdir()
    (tmp_path / "work/sub/test_a.py").write_text(TESTS)

    def run(command: str, *tests: str, until: str = LATER) -> Outcome:
        entries = [{"test": test, "owner": "ann", "until": until} for test in tests]
        given = {**checking({"command": command}), "quarantine": entries}
        outcome: Outcome = body(Action.CHECK, given, timeout_s=50.0)
        return outcome

    return run


BOTH = ("sub/test_a.py::test_flips", "sub.test_a.TestNet::test_slow")


def test_only_quarantined_tests_that_fail_are_accepted_and_named(check) -> None:
    outcome = check(PYTEST, *BOTH)
    assert (outcome.verdict, outcome.decided_by) == ("accept", "quarantine")
    assert outcome.quarantined == ("sub.test_a::test_flips[a/b]", "sub.test_a.TestNet::test_slow")
    assert outcome.text.startswith(
        f"Only quarantined tests failed: sub.test_a::test_flips[a/b] (ann, until {LATER}); "
    )
    assert outcome.warning in outcome.text
    assert outcome.counts.failed == 2


def test_other_failed_test_refuses_the_work(check) -> None:
    outcome = check(PYTEST, BOTH[0])
    assert (outcome.verdict, outcome.quarantined) == ("retry", None)
    one = check(f"{PYTEST} -k flips", "sub/test_a.py::test_flips[c]")
    assert one.verdict == "retry", "another parameter is another test"
    assert check(f"{PYTEST} -k flips", "sub/test_a.py::test_flips[a/b]").verdict == "accept"


def test_expired_entry_counts_as_absent_and_is_named(check) -> None:
    outcome = check(PYTEST, *BOTH, until=PAST)
    assert outcome.verdict == "retry"
    assert outcome.text.startswith(
        f"The quarantine of sub/test_a.py::test_flips (ann) ended on {PAST}."
    )


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("false", "the tests that failed are not known"),
        (f"{PYTEST} && false", "other programs of the command may have failed, too"),
        (f"{PYTEST} -x -k flips", "other programs of the command may have failed, too"),
        (f"{PYTEST} -o addopts=-x -k flips", "other programs of the command may have failed, too"),
    ],
)
def test_quarantine_has_no_effect_where_something_else_may_have_failed(check, command, why) -> None:
    outcome = check(command, *BOTH)
    assert outcome.verdict == "retry"
    assert outcome.text.startswith(f"The quarantine has no effect: {why}")
