"""Faults in the iterations of loops."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a turn closes over what runs",
        "lib/turns",
        "if redis.call('ZLEXCOUNT', tx.keys.running, addresses.range_below(turn)) > 0 then",
        "if false then",
    ),
    Fault(
        "a turn closes over its children",
        "lib/turns",
        "  if children.abort_below(tx, turn, last.has_child) then return end\n",
        "  children.abort_below(tx, turn, last.has_child)\n",
    ),
    Fault(
        "children of a turn that ends are left alone",
        "lib/tree/children",
        "if not continues and abort(tx, child) then working = true end",
        "if transaction.AT_WORK[children.status_of(tx, child)] then working = true end",
    ),
    Fault(
        "a turn waits for the children of others",
        "lib/tree/children",
        "return born_between(tx, addresses.range_below(turn))",
        "return born_between(tx, '-', '+')",
        seed=20,
    ),
    Fault(
        "a child's end is heard by the session alone",
        "lib/control/effects",
        "outcomes.close_around(tx, tx.args.address and addresses.block_of(tx.args.address) or '')",
        "outcomes.close_around(tx, '')",
        "test_a_loop_that_breaks_releases_nothing_while_a_child_below_it_works",
    ),
    Fault(
        "nobody knows where a child was born",
        "lib/tree/parents",
        "  redis.call('ZADD', parent.base .. 'born', 0, parent.address .. "
        "'<' .. tx.args.session)\n",
        "",
        "test_a_child_that_is_born_while_its_loop_ends_ends_with_it",
    ),
    Fault(
        "a child is born into a session that stops",
        "lib/tree/parents",
        "'status') == 'active'\nend",
        "'status') ~= ''\nend",
        "test_a_stop_that_comes_before_a_child_is_born_fails_nobody",
    ),
    Fault(
        "a stop does not wait for children",
        "lib/sessions",
        " or children.any_at_work(tx) or last.run(tx) then return end\n",
        " or last.run(tx) then return end\n",
    ),
    Fault(
        "a turn that ends leaves its steps ready",
        "lib/cancellation",
        "if not last.keep(tx, address, step, turn) and step.state ~= 'running' then",
        "if false then",
    ),
    Fault(
        "inner turns outlive the outer one",
        "lib/turns",
        "  cancellation.close_below(tx, id, low, high, verdict == 'exit' and 'exit' "
        "or 'cancelled', reason)\n",
        "",
    ),
    Fault(
        "a loop turns once too often",
        "lib/turns",
        "if iteration >= turn.max then",
        "if iteration > turn.max then",
    ),
    Fault(
        "what fails at once starts its neighbours",
        "lib/turns",
        "  if has_ended(tx, block) then return end\n  local r, run",
        "  local r, run",
        "test_nothing_starts_beside_a_loop_that_fails_at_once",
    ),
    Fault("a retried loop spends no retry", "lib/turns", "turn.left - 1", "turn.left"),
    Fault(
        "who is handed back does not close the turn",
        "lib/outcomes",
        "    cancellation.cancel_step(tx, address, step)\n"
        "    outcomes.close_around(tx, addresses.block_of(address))\n",
        "    cancellation.cancel_step(tx, address, step)\n",
    ),
    Fault(
        "what parks too late releases nothing",
        "park",
        "  dispatch.run(tx)\n",
        "",
        "test_park_in_a_closing_loop_hands_the_step_back_and_goes_on",
    ),
    # The share of the work that is done.
    Fault(
        "iterations that a loop does not need stay expected",
        "lib/steps/shares",
        " + (turn.max - turn.iteration) * r.body)",
        ")",
        found_by="test_work_of_a_completed_session_is_covered",
    ),
    Fault(
        "steps that an iteration did not run stay expected",
        "lib/steps/shares",
        "  shares.cover(tx, addresses.block_of(id), left)\n",
        "",
        found_by="test_rest_of_an_iteration_that_is_passed_over_is_covered",
    ),
    Fault(
        "a next run of a loop is not expected",
        "lib/steps/shares",
        "  if id:match('~(%d+)$') ~= '1' then shares.expect(tx, block, r.size) end\n",
        "",
        found_by="test_work_of_a_completed_session_is_covered",
    ),
    Fault(
        "the items of a list are not expected",
        "lib/steps/shares",
        "    if r.width < 0 then shares.expect(tx, block, r.weight * (turn.width - 1)) end\n",
        "",
        found_by="test_work_of_a_completed_session_is_covered",
    ),
    Fault(
        "a skipped loop stays expected",
        "lib/conditions",
        "width = r.each and 0 or nil})\n  shares.cover(tx, block, r.size)\n",
        "width = r.each and 0 or nil})\n",
        found_by="test_work_of_a_completed_session_is_covered",
    ),
)
