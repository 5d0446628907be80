"""Faults in Stop guards: two hooks at once, a lock that stays, a stop that counts twice."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_BUSY = (
    "  if hook and not is_own and tx.now - hook.at < args.stale_ms then"
    " return reply(tx, 'busy') end\n"
)
_TWO_HOOKS = "test_second_hook_is_told_that_one_runs_already"
_KILLED = "test_killed_hook_is_replaced_after_the_stale_timeout_and_not_before"
_REPEATED = "test_same_stop_again_gets_the_same_decision_and_counts_once"

FAULTS = (
    Fault("two hooks of one guard run", "guard_begin", _BUSY, "", found_by=_TWO_HOOKS),
    Fault(
        "a killed hook keeps its guard",
        "guard_begin",
        " and tx.now - hook.at < args.stale_ms then",
        " then",
        found_by=_KILLED,
    ),
    Fault(
        "a hook is stale too soon",
        "guard_begin",
        "tx.now - hook.at < args.stale_ms",
        "tx.now - hook.at < args.stale_ms - 1",
        found_by=_KILLED,
    ),
    Fault(
        "a replaced hook decides",
        "guard_write",
        "    if not hook or hook.stop ~= args.stop then return reply(tx, 'superseded') end\n",
        "",
        found_by="test_hook_that_was_replaced_while_it_decided_writes_nothing",
    ),
    Fault(
        "a state that changed meanwhile is written over",
        "guard_write",
        "  if tonumber(redis.call('HGET', key, 'version') or 0) ~= args.version then"
        " return reply(tx, 'changed') end\n",
        "",
        found_by="test_state_that_changed_meanwhile_is_not_written_over",
    ),
    Fault(
        "a decision is forgotten",
        "lib/guards",
        "  redis.call('HSET', tx.keys.guard, 'stop:' .. stop, decision)\n",
        "",
        found_by=_REPEATED,
    ),
    Fault(
        "a decision does not free the guard",
        "guard_write",
        "  if args.stop or args.frees then",
        "  if args.frees then",
        found_by=_TWO_HOOKS,
    ),
    Fault(
        "a reset does not free the guard",
        "guard_write",
        "  if args.stop or args.frees then",
        "  if args.stop then",
        found_by="test_reset_begins_the_limits_again_and_frees_the_hook",
    ),
    Fault(
        "a stop is not in the ledger",
        "guard_write",
        "    redis.call('RPUSH', tx.keys.ledger, tx.entry)\n",
        "",
        found_by="test_each_stop_is_an_iteration_of_the_ledger_with_its_reasons",
    ),
    Fault(
        "a guard ends although its agent stops",
        "guard_write",
        "  guards.postpone_end(tx, args.idle_ms)\n",
        "",
        found_by="test_guard_without_stops_ends_completed_after_its_idle_time",
    ),
)
