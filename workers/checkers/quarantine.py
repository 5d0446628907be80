"""Quarantined tests: their failures alone do not refuse the work (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import date

from app.domain.outcomes import Outcome
from app.truncate import cut
from leadhand.models.documents import Quarantined
from workers.agents.output_parser import TEXT_LIMIT
from workers.checkers.commands import CommandRun

_PATH = re.compile(r"\.py(?=::|$)")


def without_quarantined(
    entries: Sequence[Quarantined], ran: CommandRun, outcome: Outcome, *, today: date
) -> Outcome:
    """Accepts a red run of which only quarantined tests failed; else says what has no effect.

    It must be known that nothing else is red: the command is one test runner, its exit code is
    that of failed tests, and all failures are named.
    """
    if not entries or outcome.verdict != "retry" or outcome.decided_by != "exit_code":
        return outcome
    if ran.tests is None or len(ran.tests.failed) < ran.tests.counts.failed:
        why = "the tests that failed are not known"
        return with_note(outcome, f"The quarantine has no effect: {why}.")
    held = {name: entry for name in ran.tests.failed if (entry := _entry(entries, name))}
    expired = [entry for entry in held.values() if entry.until < today]
    note = " ".join(
        f"The quarantine of {entry.test} ({entry.owner}) ended on {entry.until}."
        for entry in dict.fromkeys(expired)
    )
    left = [name for name in ran.tests.failed if name not in held or held[name].until < today]
    if left or not held:
        return with_note(outcome, note)
    if not ran.only_tests_failed:
        why = "other programs of the command may have failed, too; write it as one test runner"
        return with_note(outcome, f"The quarantine has no effect: {why}.")
    listed = "; ".join(_described(name, entry) for name, entry in held.items())
    text = f"Only quarantined tests failed: {listed}."
    return outcome.model_copy(
        update={
            "verdict": "accept",
            "decided_by": "quarantine",
            "text": cut(f"{text}\n\n{outcome.text}", TEXT_LIMIT),
            "quarantined": tuple(held),
            "warning": cut(text, 1_000),
        }
    )


def with_note(outcome: Outcome, note: str) -> Outcome:
    """Returns the outcome with a note before its text, if there is one."""
    if not note:
        return outcome
    text = f"{note}\n\n{outcome.text}".rstrip()
    return outcome.model_copy(update={"text": cut(text, TEXT_LIMIT)})


def _described(name: str, entry: Quarantined) -> str:
    return f"{name} ({entry.owner}, until {entry.until})"


def _entry(entries: Iterable[Quarantined], name: str) -> Quarantined | None:
    """The entry of a test that lasts longest; one without parameters is of all of them."""
    names = {_plain(name), _plain(name).partition("[")[0]}
    found = [entry for entry in entries if _plain(entry.test) in names]
    return max(found, key=lambda entry: entry.until, default=None)


def _plain(name: str) -> str:
    """The name of a test as pytest and JUnit reports write it.

    >>> _plain("tests/test_a.py::TestX::test_y[a/b]"), _plain("tests.test_a.TestX::test_y[a/b]")
    ('tests.test_a.TestX.test_y[a/b]', 'tests.test_a.TestX.test_y[a/b]')
    """
    head, bracket, parameters = name.partition("[")
    return _PATH.sub("", head).replace("/", ".").replace("::", ".") + bracket + parameters
