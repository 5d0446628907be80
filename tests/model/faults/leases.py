"""Faults in leases, deadlines and parked steps."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a beat extends the deadline",
        "beat",
        "math.min(tx.now + args.lease_ms, step.deadline + attempts.GRACE_MS)",
        "tx.now + args.lease_ms",
    ),
    Fault(
        "a lease outlives its deadline",
        "lib/attempts",
        "math.min(tx.now + tx.args.lease_ms, step.deadline + attempts.GRACE_MS)",
        "tx.now + tx.args.lease_ms",
    ),
    Fault(
        "a living attempt is given up", "expire", "if step.lease > tx.now and (", "if false and ("
    ),
    Fault(
        "a timeout counts as a loss",
        "expire",
        "if (step.heard or 0) >= step.deadline then",
        "if false then",
        "test_beats_do_not_extend_the_deadline",
    ),
    Fault(
        "whoever was lost long ago took too long",
        "expire",
        "if (step.heard or 0) >= step.deadline then",
        "if tx.now >= step.deadline + 10000 then",
        "test_whoever_is_found_late_was_lost_and_did_not_take_too_long",
    ),
    Fault(
        "a loss counts as a failure",
        "expire",
        "usage.tally(tx, address, 'attempts_lost')",
        "usage.tally(tx, address, 'attempts_failed')",
    ),
    Fault(
        "no step is ever poison",
        "expire",
        "step.lost > LOST_MAX",
        "false",
        "test_step_that_kills_its_workers_is_poison",
    ),
    Fault(
        "a question that cannot be written is asked by half",
        "park",
        "cjson.encode(step)   -- what",
        "-- what",
        "test_question_that_cannot_be_written_is_not_asked_by_half",
    ),
    Fault(
        "a question is closed before its time",
        "lib/deadlines",
        "if wait.until_ms > tx.now then",
        "if false then",
        "test_question_that_nobody_answers_fails_at_its_deadline",
    ),
    Fault(
        "whoever is said to be gone, all attempts end",
        "expire",
        "if step.lease > tx.now and (not gone or step.owner ~= gone) then",
        "if step.lease > tx.now and not gone then",
        "test_a_lease_of_who_is_gone_is_not_waited_for",
    ),
)
