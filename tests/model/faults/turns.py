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
        "lib/children",
        "if not continues and abort(tx, child) then working = true end",
        "if transaction.AT_WORK[children.status_of(tx, child)] then working = true end",
    ),
    Fault(
        "a turn waits for the children of others",
        "lib/children",
        "return born_between(tx, addresses.range_below(turn))",
        "return born_between(tx, '-', '+')",
        seed=20,
    ),
    Fault(
        "a child's end is heard by the session alone",
        "lib/effects",
        "outcomes.close_around(tx, tx.args.address and addresses.block_of(tx.args.address) or '')",
        "outcomes.close_around(tx, '')",
        "test_a_loop_that_breaks_releases_nothing_while_a_child_below_it_works",
    ),
    Fault(
        "nobody knows where a child was born",
        "lib/parents",
        "  redis.call('ZADD', parent.base .. 'born', 0, parent.address .. "
        "'<' .. tx.args.session)\n",
        "",
        "test_a_child_that_is_born_while_its_loop_ends_ends_with_it",
    ),
    Fault(
        "a child is born into a session that stops",
        "lib/parents",
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
    # An iteration in which the checks run again on the same work.
    Fault(
        "a recheck counts as an iteration",
        "lib/ledger",
        "  if turn.recheck ~= iteration then records.count(tx, 'iterations') end\n",
        "  records.count(tx, 'iterations')\n",
    ),
    Fault(
        "a recheck uses the limit of iterations",
        "lib/turn_records",
        "turn.iteration + 1, turn.max + 1\n",
        "turn.iteration + 1, turn.max\n",
    ),
    Fault(
        "a recheck uses the budget of iterations",
        "lib/turns",
        "  local more = not again and (",
        "  local more = (",
        "test_recheck_uses_no_budget_of_iterations",
    ),
    Fault(
        "a loop is rechecked twice",
        "lib/turn_records",
        "  if turn.recheck then return end\n",
        "",
    ),
    Fault(
        "the doer of a recheck is started",
        "lib/attempts",
        "recheck = turn_records.recheck_around(tx, address),",
        "",
    ),
    Fault(
        "the second attempt of a step knows of no recheck",
        "lib/attempts",
        "recheck = turn_records.recheck_around(tx, address),",
        "recheck = step.fence == 1 and turn_records.recheck_around(tx, address) or nil,",
        "test_stale_verdict_opens_one_iteration_that_does_not_count",
    ),
    Fault(
        "a recheck is lost by a resume from before it",
        "lib/resume",
        "left = level.left, recheck = level.recheck,",
        "left = level.left,",
        "test_recheck_stays_one_in_a_resume_from_before_it",
    ),
    Fault(
        "a stale verdict counts as no progress",
        "lib/turn_records",
        " or tx.args.recheck then return false end\n",
        " then return false end\n",
    ),
    Fault(
        "a retried loop gets one more iteration for a recheck",
        "lib/turns",
        "turn.left - 1, turn_records.allowance(turn))",
        "turn.left - 1, turn.max)",
        "test_next_run_of_a_loop_has_its_own_recheck",
    ),
    Fault(
        "messages are given to a doer that is not started",
        "lib/inbox",
        " and not turn_records.is_recheck(tx, address)\n",
        "\n",
        "test_doer_of_a_recheck_gets_no_messages",
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
