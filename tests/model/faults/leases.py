"""Faults in leases, deadlines and parked steps."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "an approval counts whatever the folder has become",
        "answer",
        "  if is_bound(args, step.parked) then\n",
        "  if false and is_bound(args, step.parked) then\n",
    ),
    Fault(
        "an answer is forgotten while its folder is compared",
        "lib/attempts",
        "given = step.given,",
        "given = nil,",
    ),
    Fault(
        "an answer to the first question counts for the second",
        "park",
        "step.given, step.answered_by = nil, nil",
        "step.answered_by = nil",
        seed=796,
    ),
    Fault(
        "an answer is accepted after its deadline",
        "answer",
        "args.by ~= 'deadline' and",
        "false and",
        "test_answer_after_the_deadline_is_refused_and_the_step_has_failed",
    ),
    Fault(
        "an outcome is accepted after the deadline",
        "lib/deadlines",
        "if not is_late and not deadlines.is_overdue(tx, step) then return end",
        "if not is_late then return end",
        "test_outcome_of_an_attempt_that_was_silent_past_its_deadline_is_lost",
    ),
    Fault(
        "a late outcome is stored",
        "lib/deadlines",
        "  tx.document, tx.entry, tx.argv = '', '', {}\n",
        "",
        "test_answer_after_the_deadline_is_refused_and_the_step_has_failed",
    ),
    Fault(
        "the use of a late attempt is not counted",
        "settle",
        "if deadlines.is_overdue(tx, step) then",
        "if false then",
        "test_outcome_of_an_attempt_that_beat_past_its_deadline_is_a_timeout",
    ),
    Fault(
        "an attempt is late before the first sweep of a Redis that was down",
        "lib/deadlines",
        "> QUIET_MS then return false end",
        "> 1000 * QUIET_MS then return false end",
        "test_outcome_after_the_deadline_counts_before_the_first_sweep_of_a_redis_that_was_down",
    ),
    Fault(
        "an attempt is late although Redis has just restarted",
        "lib/deadlines",
        "return tx.now >= tonumber(redis.call('HGET', tx.shared.epoch, 'grace') or 0)",
        "return true",
        "test_outcome_after_the_deadline_counts_while_redis_has_just_restarted",
    ),
    Fault(
        "a step is claimed after the time of its session",
        "claim",
        "  deadlines.apply_to_session(tx)\n",
        "",
    ),
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
        "a living attempt is given up",
        "lib/deadlines",
        "if step.lease > tx.now and (",
        "if false and (",
    ),
    Fault(
        "a timeout counts as a loss",
        "lib/deadlines",
        "if (step.heard or 0) >= step.deadline then",
        "if false then",
        "test_beats_do_not_extend_the_deadline",
    ),
    Fault(
        "whoever was lost long ago took too long",
        "lib/deadlines",
        "if (step.heard or 0) >= step.deadline then",
        "if tx.now >= step.deadline + 10000 then",
        "test_whoever_is_found_late_was_lost_and_did_not_take_too_long",
    ),
    Fault(
        "a loss counts as a failure",
        "lib/deadlines",
        "usage.tally(tx, address, 'attempts_lost')",
        "usage.tally(tx, address, 'attempts_failed')",
    ),
    Fault(
        "no step is ever poison",
        "lib/deadlines",
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
        "lib/deadlines",
        "if step.lease > tx.now and (not gone or step.owner ~= gone) then",
        "if step.lease > tx.now and not gone then",
        "test_a_lease_of_who_is_gone_is_not_waited_for",
    ),
)
