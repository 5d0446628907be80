"""Faults that graphs of tools notice."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_GRAPHS = "test_a_few_graphs_notice_a_fault"

#: Faults in verbs and in the order of steps; other tests notice some of them by other programs.
_OF_RANDOM_GRAPHS = (
    Fault(
        "a failed session ends without its last steps",
        "lib/turns",
        "and last.run(tx, last.is_failure(turn)) then return end",
        "and false then return end",
        _GRAPHS,
    ),
    Fault(
        "a stop is acknowledged without the last steps",
        "lib/sessions",
        " or last.run(tx) then return end",
        " then return end",
        _GRAPHS,
    ),
    Fault(
        "a stop drops the last step that waits",
        "lib/sessions",
        "    if step.state == 'ready' then table.insert(tx.released, address) end\n",
        "",
        "test_stop_of_a_session_that_ends_keeps_the_retry_of_its_last_step",
    ),
    Fault(
        "a stop hints a last step twice",
        "lib/dispatch",
        "      offered[address] = true\n",
        "",
        "test_last_step_that_was_ready_before_a_stop_is_hinted_once",
    ),
    Fault(
        "an audit takes last steps for damage",
        "lib/audit/findings",
        "status == 'active' or (step.last and transaction.AT_WORK[status]) or false",
        "status == 'active'",
        "test_audit_takes_the_ticket_of_a_last_step_for_sound",
    ),
    Fault(
        "a last step does not run again after a resume",
        "lib/effects",
        "  if not failed then last.reset(tx) end\n",
        "",
        _GRAPHS,
    ),
    Fault(
        "a resume forgets what has arrived at a last step",
        "lib/steps/last",
        "        redis.call('ZADD', tx.keys.arrived, 0, to .. member:sub(#from + 1))\n",
        "",
        "test_stop_between_two_steps_keeps_what_has_arrived",
    ),
    Fault(
        "the last steps run after an abort",
        "lib/steps/last",
        "root.state ~= 'closed' and root.verdict ~= 'abort'",
        "root.state ~= 'closed'",
        "test_abort_cancels_a_last_step_that_runs",
    ),
    Fault(
        "the end of a last step aborts the child of another",
        "lib/turns",
        "children.abort_below(tx, turn, last.has_child)",
        "children.abort_below(tx, turn)",
        "test_child_of_a_last_step_continues_when_another_last_step_ends",
    ),
    Fault(
        "a stop stops the child of a last step",
        "lib/effects",
        "children.send_all(tx, 'stop', last.has_child)",
        "children.send_all(tx, 'stop')",
        "test_stop_leaves_the_child_of_a_last_step_at_work",
    ),
    Fault(
        "a step beside a failure delays no last step",
        "lib/turns",
        "  if redis.call('ZLEXCOUNT', tx.keys.running, addresses.range_below(turn)) > 0 then "
        "return end\n",
        "",
        "test_step_beside_the_failure_ends_before_the_last_one_starts",
    ),
    Fault(
        "a graph's step to come is not skipped",
        "lib/turns",
        "  local why = skips.take(tx, addresses.within(block, name))\n",
        "  local why\n",
        _GRAPHS,
    ),
    Fault(
        "a graph's step is skipped in its next run, too",
        "lib/steps/skips",
        "  redis.call('HDEL', tx.keys.skips, name)\n",
        "",
        _GRAPHS,
    ),
    Fault(
        "a graph's failed step runs again instead of being skipped",
        "lib/resume",
        "  for _, skipped in ipairs(tx.args.skips or {}) do\n",
        "  for _, skipped in ipairs({}) do\n",
        _GRAPHS,
    ),
    Fault(
        "a graph's fork runs nothing",
        "steps_fork",
        "  resume.run_again(tx, args.again, args.levels, args.threads)\n",
        "  resume.run_again(tx, {}, args.levels, args.threads)\n",
        _GRAPHS,
    ),
    Fault(
        "a resumed graph forgets what is done",
        "lib/resume",
        "      for _, need in ipairs(node.done) do full = joins.arrive(tx, join, "
        "need, needs) end\n",
        "",
        _GRAPHS,
    ),
    Fault(
        "a resumed graph runs its old runs",
        "lib/resume",
        "    if node.name ~= '' and end_run(tx, node.name) then\n",
        "    if node.name ~= '' and end_run(tx, node.name) and false then\n",
        _GRAPHS,
    ),
    Fault(
        "who has lost a graph's step settles it",
        "settle",
        "if not step or step.fence ~= args.fence or step.nonce ~= args.nonce then",
        "if not step then",
        _GRAPHS,
    ),
    Fault(
        "a graph's step begins one need too early",
        "lib/joins",
        "< needed then return false end",
        "< needed - 1 then return false end",
        _GRAPHS,
    ),
    Fault(
        "a graph's list starts more items than its limit",
        "lib/steps/items",
        "math.min(width - kept, r.at_once or width)",
        "width - kept",
        _GRAPHS,
    ),
    Fault(
        "a critical failure does not end a graph",
        "lib/outcomes",
        "  if word == 'failed' and r.critical then\n",
        "  if false then\n",
        _GRAPHS,
    ),
    Fault(
        "each failure ends a graph",
        "lib/outcomes",
        "  if word == 'failed' and r.critical then\n",
        "  if word == 'failed' then\n",
        _GRAPHS,
    ),
)

FAULTS = (
    *_OF_RANDOM_GRAPHS,
    Fault(
        "a step that fails while its session ends gives no warning",
        "lib/outcomes",
        "    warn_of_failure(tx, address, r, word, reason)   -- a resume counts the step as done\n",
        "",
        "test_a_step_that_fails_while_the_session_ends_is_a_warning_of_the_resumed_one",
    ),
    Fault(
        "a graph's step is retried once too often",
        "lib/outcomes",
        "retryable and step.failed <= r.retries and",
        "retryable and step.failed <= r.retries + 1 and",
        _GRAPHS,
    ),
    Fault(
        "a graph's step is retried once too seldom",
        "lib/outcomes",
        "if not (retryable and step.failed <= r.retries",
        "if not (retryable and step.failed < r.retries",
        _GRAPHS,
    ),
    Fault(
        "an error that a graph's step does not name is retried",
        "lib/outcomes",
        "  if not (retryable and step.failed",
        "  if not (step.failed",
        "test_an_error_that_a_step_does_not_name_is_final",
    ),
)
