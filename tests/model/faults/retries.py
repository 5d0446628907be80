"""Faults in retries of a step."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a retry is not counted",
        "lib/outcomes",
        "step.failed = (step.failed or 0) + 1",
        "step.failed = step.failed or 0",
    ),
    Fault(
        "busy for ever",
        "lib/steps/retries",
        "step.busy = before + 1",
        "step.busy = before",
        seed=21,
    ),
    Fault(
        "busy in an ended turn",
        "lib/steps/retries",
        "busy.tries or not may_start",
        "busy.tries",
        seed=502,
    ),
    Fault(
        "back-off does not grow",
        "lib/steps/retries",
        "* 2 ^ (step.failed - 1)",
        "* 1",
        seed=53,
    ),
    Fault(
        "what ends is tried again",
        "lib/outcomes",
        "step.failed <= r.retries and turn_records.lets_run(tx, address, step)",
        "step.failed <= r.retries",
        seed=50,
    ),
    Fault(
        "retries are one too many",
        "core/routing.py",
        "step.retry.retries,",
        "step.retry.retries + 1,",
    ),
)
