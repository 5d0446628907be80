"""Faults in the limits and rates of keys."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "slots that nobody took add up",
        "lib/locks/rates",
        "  if tx.now - slot > LATE_MS then return 1, tx.now end\n",
        "",
        "test_slots_do_not_add_up_while_nobody_works",
    ),
    Fault(
        "nobody is called for a slot to come",
        "lib/locks/calls",
        "  if free <= 0 then return end\n",
        "  if free <= 0 or slots < 1 then return end\n",
        "test_slots_do_not_add_up_while_nobody_works",
    ),
    Fault(
        "who waits for a pace is not told of another one",
        "limit",
        "calls.call_next(tx, args.key)\n",
        "",
        "test_the_sweep_finds_who_waits_for_an_old_pace",
    ),
    Fault(
        "a session stands in the line of a limited key with all that it has",
        "lib/hints",
        "      if not must and window_full(tx, key) then return key end\n",
        "",
        "test_a_small_session_is_not_behind_many_with_its_key",
    ),
    Fault(
        "a place in the line of a limited key is never given back",
        "lib/hints",
        "  if stays or not step.places then return end\n",
        "  do return end\n",
        "test_a_limit_that_is_set_later_holds_a_session_to_its_window",
    ),
    Fault(
        "priority counts for nothing in the line of a limited key",
        "lib/locks/tickets",
        "string.format('%d%014d', priority, ",
        "string.format('%d%014d', 5, ",
        "test_who_has_priority_goes_first_in_the_line_of_a_limited_key",
    ),
    Fault(
        "who was called and cannot come keeps all others waiting",
        "lib/locks/calls",
        "      records.save(tx, 'steps', address)\n      calls.call_next(tx, name)\n",
        "      records.save(tx, 'steps', address)\n",
        "test_who_cannot_come_idles_a_key_for_a_moment_only",
    ),
    Fault(
        "two who need two slots refuse each other for ever",
        "lib/locks/locks",
        "  if came then let_others_go(tx, address, step.waits) end\n",
        "",
        "test_two_who_need_two_slots_do_not_keep_each_other_from_both",
    ),
    Fault(
        "who waits is not in the line of a limit that is set meanwhile",
        "lib/locks/tickets",
        "    if lock.take ~= nil and not step.tickets[lock.name] then\n",
        "    if lock.take ~= nil and not step.tickets[lock.name] and not step.blocked then\n",
        "test_who_waits_stands_in_the_line_of_a_limit_that_is_set_meanwhile",
    ),
    Fault(
        "who was passed over is called again before it has come",
        "lib/locks/tickets",
        "  redis.call('HSET', tx.shared.called, tickets.called_field(lock, who), "
        "-tx.now - NEVER_MS)\n",
        "",
        "test_who_cannot_come_idles_a_key_for_a_moment_only",
    ),
    Fault(
        "each transition near a limit calls for a person",
        "lib/budgets",
        "changes.call_person(tx, true)   -- each",
        "changes.call_person(tx)   -- each",
        "test_limit_calls_for_a_person_once",
    ),
)
