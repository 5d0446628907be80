"""Faults in steps that a user skips, and in forks."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a skip is forgotten before the step's turn comes",
        "lib/turns",
        "  local why = skips.take(tx, addresses.within(block, name))\n",
        "  local why\n",
        "test_pending_step_is_skipped_when_its_turn_comes",
    ),
    Fault(
        "a skip holds for each run",
        "lib/steps/skips",
        "  redis.call('HDEL', tx.keys.skips, name)\n",
        "",
        "test_skip_holds_for_one_run",
    ),
    Fault(
        "a step that runs is skipped",
        "steps_skip",
        "local DIRECT = {ready = true, parked = true}",
        "local DIRECT = {ready = true, parked = true, running = true}",
        "test_step_that_starts_meanwhile_is_not_skipped",
    ),
    Fault(
        "a failed step runs again instead of being skipped",
        "lib/resume",
        "  for _, skipped in ipairs(tx.args.skips or {}) do\n",
        "  for _, skipped in ipairs({}) do\n",
        "test_failed_step_that_is_skipped_lets_the_session_complete",
    ),
    Fault(
        "the items of an older run are worked on after their list was skipped",
        "lib/steps/skips",
        "  for _, name in ipairs(lists or {}) do",
        "  for _, name in ipairs({}) do",
        "test_skipped_step_that_is_a_list_itself_has_no_items_in_the_next_run",
    ),
    Fault(
        "a session that has changed since is skipped in",
        "steps_skip",
        "  if not sessions.is_as_seen(tx) then return",
        "  if false then return",
        "test_skip_of_a_session_that_has_changed_is_refused",
    ),
    Fault(
        "a skipped step is not said to be one",
        "steps_skip",
        "step, 'skipped', nil, tx.args.reason)",
        "step, 'succeeded', nil, tx.args.reason)",
        "test_ready_step_that_is_skipped_says_why",
    ),
    Fault(
        "a fork has a part of what it was copied from",
        "steps_fork",
        "  if not is_whole(tx) then return 'torn' end\n",
        "",
        "test_fork_of_a_torn_copy_is_made_anew",
    ),
    Fault(
        "what a fork was copied from expires",
        "steps_fork",
        "  sessions.keep(tx)\n",
        "",
        "test_audit_finds_nothing_wrong_with_a_fork",
    ),
    Fault(
        "a repeated call finds the fork of the first one by its key",
        "steps_fork",
        "made_by and made_by == args.fields.nonce",
        "made_by and not args.key",
        "test_repeated_call_with_a_key_keeps_the_fork_that_the_first_one_made",
    ),
    Fault(
        "a session is forked that is gone",
        "steps_fork",
        "if not found[1] or (origin.updated and",
        "if (origin.updated and",
        "test_fork_of_a_session_that_is_deleted_meanwhile_is_refused",
    ),
    Fault(
        "a session is forked by a plan that no longer fits",
        "steps_fork",
        "(origin.updated and found[2] ~= origin.updated)",
        "false",
        "test_fork_of_a_session_that_is_resumed_meanwhile_is_planned_anew",
    ),
    Fault(
        "a fork in a loop begins that anew",
        "steps_fork",
        "  resume.run_again(tx, args.again, args.levels, args.threads)\n",
        "  resume.run_again(tx, args.again, {}, args.threads)\n",
        "test_fork_in_a_loop_goes_on_in_its_iteration",
    ),
)
