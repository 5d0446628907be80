"""Faults that graphs of tools notice."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_GRAPHS = "test_a_few_graphs_notice_a_fault"

FAULTS = (
    Fault(
        "a step that fails while its session ends gives no warning",
        "lib/outcomes",
        "    warn_of_failure(tx, address, r, word, reason)   -- a resume counts the step as done\n",
        "",
        "test_a_step_that_fails_while_the_session_ends_is_a_warning_of_the_resumed_one",
    ),
    Fault(
        "a graph's step is retried once too often",
        "lib/outcomes",
        "retryable and step.failed <= r.retries and",
        "retryable and step.failed <= r.retries + 1 and",
        _GRAPHS,
    ),
    Fault(
        "a graph's step is retried once too seldom",
        "lib/outcomes",
        "if not (retryable and step.failed <= r.retries",
        "if not (retryable and step.failed < r.retries",
        _GRAPHS,
    ),
    Fault(
        "an error that a graph's step does not name is retried",
        "lib/outcomes",
        "  if not (retryable and step.failed",
        "  if not (step.failed",
        "test_an_error_that_a_step_does_not_name_is_final",
    ),
)
