"""Faults in the life of records: expiry, deletion, the audit and the cache of programs."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "what is written of a stopped session is kept for ever",
        "lib/transaction",
        "  elseif not transaction.AT_WORK[tx.session.status] then\n"
        "    transaction.expire_with_session(tx)\n",
        "",
        "test_answer_to_a_stopped_session_is_kept_no_longer_than_the_rest",
    ),
    Fault(
        "a list of children that the audit mends is kept for ever",
        "lib/audit/session_tree",
        "        findings.expire_with(parent.base .. 'children', parent.base .. 'session')\n",
        "",
        "test_a_list_of_children_that_is_mended_expires_with_its_parent",
    ),
    Fault(
        "the audit calls a stray ticket for the lock that it frees",
        "lib/audit/holders",
        "    redis.call('ZREM', tx.shared.tickets, line)\n",
        "",
        "test_a_repaired_lock_is_not_offered_to_a_step_that_does_not_wait",
    ),
    Fault(
        "the audit passes over a step that waits for a folder and that nothing looks at",
        "lib/audit/step_lists",
        "elseif findings.is_late(tx, hinted_at,",
        "elseif not step.waits and findings.is_late(tx, hinted_at,",
        "test_a_step_gets_the_folder_that_its_own_loop_took_while_nothing_looked_at_it",
    ),
    Fault(
        "routes of a program that is gone are remembered",
        "lib/transaction",
        "programs.shared_routes(tx.program .. session.made)",
        "programs.shared_routes(tx.program)",
        "test_a_program_that_is_written_anew_is_read_anew",
    ),
    Fault(
        "a lease has no deadline",
        "lib/attempts",
        "  redis.call('ZADD', tx.shared.leases, step.lease, addresses.member(tx, address))\n",
        "",
    ),
    Fault(
        "a question has no deadline",
        "park",
        "redis.call('ZADD', tx.shared.leases, step.parked.until_ms, "
        "addresses.member(tx, address))\n",
        "",
    ),
    Fault(
        "a hint has no deadline",
        "lib/hints",
        "  redis.call('ZADD', tx.shared.ready, tx.now + wait, addresses.member(tx, address))\n",
        "",
    ),
    Fault(
        "a retry has no deadline",
        "lib/hints",
        "    redis.call('ZADD', tx.shared.ready, step.due, addresses.member(tx, address))\n",
        "",
    ),
    Fault(
        "a session that was begun is moved by the sweep",
        "lib/checks",
        "    if records.load(tx, 'steps', address).fence then return true end\n",
        "",
        "test_a_session_that_was_begun_stays_at_its_place",
    ),
    Fault(
        "a session gives its folder up between two steps",
        "lib/locks/locks",
        "    local owner = addresses.member(tx, addresses.turn_of(addresses.block_of(address)))\n",
        "    local owner = addresses.member(tx, "
        "addresses.turn_of(addresses.block_of(address)))\n"
        "    if addresses.block_of(address) == '' then owner = addresses.member(tx, "
        "address) end\n",
        "test_what_stands_in_no_loop_holds_its_folder_until_the_session_s_end",
    ),
    Fault(
        "an ended session stays for ever",
        "lib/sessions",
        "  tx.keep_s = tx.session.retention + (owed and EXPORT_S or SPARE_S)\n",
        "",
    ),
    Fault(
        "a lease outlives its step",
        "lib/steps/retries",
        "  redis.call('ZREM', tx.shared.leases, addresses.member(tx, address))\n",
        "",
    ),
    Fault(
        "a resumed session is still forgotten",
        "lib/sessions",
        "  for part in pairs(parts.session) do redis.call('PERSIST', tx.keys[part]) end\n",
        "",
        "test_resumed_session_is_kept_until_it_ends_again",
    ),
    Fault(
        "delete leaves the program",
        "delete",
        "== 0 then redis.call('DEL', tx.program) end",
        "== 0 then end",
        "test_delete_frees_everything",
    ),
    Fault(
        "what a question accepts is not stored with it",
        "park",
        "rules = args.rules, ",
        "",
        "test_an_answer_that_does_not_fit_leaves_the_step_waiting",
    ),
    Fault(
        "the default of a question stops the session",
        "lib/deadlines",
        "  if step.parked.default == 'answer' then\n",
        "  if step.parked.default == 'answer!' then\n",
        "test_a_default_that_nobody_delivered_is_delivered_by_a_later_sweep",
    ),
    Fault(
        "a default that is not delivered is due all the time",
        "lib/deadlines",
        "    look_at(tx, address, tx.now + 60000)   -- again, if the caller does not give it\n",
        "",
        "test_a_default_that_nobody_delivered_is_delivered_by_a_later_sweep",
    ),
)
