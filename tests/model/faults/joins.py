"""Faults in joins and in for_each."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a join fires one too early",
        "lib/joins",
        "< needed then return false end",
        "< needed - 1 then return false end",
    ),
    Fault(
        "a join is a counter",
        "lib/joins",
        "  if redis.call('ZADD', tx.keys.arrived, 'NX', 0, join .. '<' .. name) == 0 then return",
        "  do return redis.call('HINCRBY', tx.keys.session, 'joined:' .. join, 1) >= "
        "needed end\n"
        "  if true then return",
        "test_late_success_in_a_failing_session_counts_when_it_is_resumed",
    ),
    Fault(
        "joins of all runs are one",
        "lib/joins",
        "name == '' and block .. '$' or addresses.turn_address(block, name, "
        "programs.run_of(tx, block, name))",
        "name == '' and block .. '$' or addresses.turn_address(block, name, 1)",
        "test_what_runs_anew_meets_what_does_not_in_a_join_of_its_own",
    ),
    Fault(
        "a block ends with its first open end",
        "core/routing.py",
        '"sinks": len(sinks_of(block))',
        '"sinks": 1',
    ),
    Fault(
        "a check that fails ends its loop",
        "core/routing.py",
        "    return step.critical and not judges\n",
        "    return step.critical\n",
    ),
    Fault("an empty for_each never arrives", "lib/turns", "if first == 0 then", "if false then"),
    Fault(
        "a for_each ends with its first item",
        "lib/turns",
        "joins.arrive(tx, id .. '#', item, turn.width)",
        "joins.arrive(tx, id .. '#', item, 1)",
    ),
    Fault(
        "a for_each with a limit starts all of its items",
        "lib/steps/items",
        "math.min(width - kept, r.at_once or width)",
        "width - kept",
        "test_a_for_each_with_a_limit_starts_an_item_when_another_ends",
    ),
    Fault(
        "a for_each with a limit loses an item",
        "lib/steps/items",
        "turn.begun < turn.width do",
        "turn.begun < turn.width - 1 do",
        "test_a_for_each_with_a_limit_starts_an_item_when_another_ends",
    ),
    Fault(
        "a for_each with a limit starts an item twice",
        "lib/steps/items",
        "  turn.begun = turn.begun + 1\n",
        "  turn.begun = turn.begun\n",
        "test_a_for_each_with_a_limit_starts_an_item_when_another_ends",
    ),
    Fault(
        "an item that is kept runs again",
        "lib/steps/items",
        "if not turn.kept or not records.load",
        "if true or not records.load",
        "test_items_that_were_kept_are_kept_again",
    ),
    Fault(
        "an item that is kept does not arrive",
        "lib/steps/items",
        "    joins.arrive(tx, id .. '#', string.format('%d', item), width)\n",
        "",
        "test_items_that_were_kept_are_kept_again",
    ),
    Fault(
        "an item that is kept has no outcome",
        "lib/steps/items",
        "if outcome then",
        "if false then",
        "test_items_that_were_kept_are_kept_again",
    ),
    Fault(
        "an item that a user skips does not arrive",
        "lib/turns",
        "if skipped then return",
        "if false then return",
        "test_last_item_that_is_not_done_is_skipped",
    ),
)
