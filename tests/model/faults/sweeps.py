"""Faults in the sweep: the grace after a restart, and a clock that steps back."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a restart has no grace",
        "due",
        "now >= grace and due_lists.batch(tx, shared.leases)",
        "due_lists.batch(tx, shared.leases)",
    ),
    Fault(
        "a timer waits for the grace of leases",
        "due",
        "or due_lists.timers(tx)",
        "or {}",
        "test_a_timer_waits_for_no_grace_after_a_restart",
    ),
    Fault(
        "in the time of grace all that is parked is late",
        "lib/due_lists",
        "return parked and (parked.on == 'wait' or parked.on == 'stop')",
        "return parked",
        "test_a_timer_waits_for_no_grace_after_a_restart",
    ),
    Fault(
        "a clock that steps back keeps all from looking",
        "due",
        "if last <= now and now - last < args.every_ms then",
        "if now - last < args.every_ms then",
        "test_a_clock_that_steps_back_keeps_nobody_from_looking",
    ),
    Fault(
        "who makes room waits behind who needs some",
        "lib/due_lists",
        "if errand:sub(1, 7) == 'forget|' then table",
        "do table",
        "test_what_makes_room_is_found_whatever_stands_before_it",
    ),
    Fault(
        "what a clock that steps back leaves in the future waits for it",
        "due",
        "if last > now then clock_step.adjust(tx) end",
        "",
        "test_a_dead_workers_step_runs_again_a_lease_after_the_clock_stepped_back",
    ),
    Fault(
        "what is begun after the clock stepped back is taken as begun before",
        "lib/clock_step",
        "  if by <= 0 then return end\n",
        "",
        "test_what_was_claimed_after_the_clock_stepped_back_is_left_alone",
    ),
    Fault(
        "a timer waits for the time that was",
        "lib/clock_step",
        "  if step.parked then step.parked.until_ms = step.parked.until_ms - by end\n",
        "",
        "test_a_wait_is_no_longer_because_the_clock_stepped_back",
    ),
    Fault(
        "who called exit works on until the time of that comes again",
        "beat",
        " and exited <= tx.now and",
        " and",
        "test_who_called_exit_has_no_more_than_its_moment_when_the_clock_steps_back",
    ),
    Fault(
        "who was called for a lock keeps it until that time comes again",
        "lib/clock_step",
        "if tonumber(called[i + 1]) > tx.now then redis.call('HSET', tx.shared.called",
        "if false then redis.call('HSET', tx.shared.called",
        "test_who_was_called_for_a_lock_keeps_it_no_longer_when_the_clock_steps_back",
    ),
)
