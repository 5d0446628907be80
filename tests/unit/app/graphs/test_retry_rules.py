"""Which errors of a step are retried."""

from __future__ import annotations

import pytest

from app.core.outcomes import Busy, Outcome
from app.core.program import RetryPolicy, apply_policy, errors_of
from leadhand.models.verdicts import Reason, ReasonCode

LATE = Outcome(word="failed", reason=Reason(code=ReasonCode.TIMEOUT), retryable=True)
STOPPED = Outcome(word="failed", exit_code=75, retryable=True)
RAISED = Outcome(word="failed", errors=("ConnectionResetError", "OSError", "http 503"))
BUSY = Outcome(word="failed", busy=Busy(tries=3))


@pytest.mark.parametrize(
    ("on", "outcome", "is_retried"),
    [
        ((), LATE, True),
        (("timeout",), LATE, True),
        (("exit 75",), LATE, False),
        (("exit 75",), STOPPED, True),
        (("exit 7",), STOPPED, False),
        (("OSError",), RAISED, True),
        (("ValueError",), RAISED, False),
        (("http 503",), RAISED, True),
        (("http 5xx",), RAISED, True),
        (("http 4xx", "http 500"), RAISED, False),
    ],
)
def test_a_failed_attempt_is_retried_if_its_error_is_named(on, outcome, is_retried) -> None:
    found = apply_policy(RetryPolicy(retries=1, on=on), outcome)
    assert found.retryable is is_retried


def test_a_busy_service_is_asked_again_only_if_busy_is_named() -> None:
    assert apply_policy(RetryPolicy(), BUSY).busy is not None
    assert apply_policy(RetryPolicy(on=("busy",)), BUSY).busy is not None
    assert apply_policy(RetryPolicy(on=("timeout",)), BUSY).busy is None


def test_a_failure_that_the_tool_calls_final_is_retried_if_its_error_is_named() -> None:
    final = RAISED.model_copy(update={"retryable": False})
    assert apply_policy(RetryPolicy(on=("OSError",)), final).retryable
    assert not apply_policy(RetryPolicy(on=("timeout",)), final).retryable
    assert not apply_policy(RetryPolicy(), final).retryable


def test_a_cancelled_call_is_never_retried() -> None:
    cancelled = Reason(code=ReasonCode.CANCELLED)
    outcome = RAISED.model_copy(update={"retryable": False, "reason": cancelled})
    assert not apply_policy(RetryPolicy(on=("OSError",)), outcome).retryable


def test_the_names_of_errors_are_not_stored() -> None:
    assert "OSError" not in RAISED.model_dump_json()
    assert errors_of(RAISED) == {"ConnectionResetError", "OSError", "http 503"}
