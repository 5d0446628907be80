"""Faults in stop, resume, exit and abort."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "nobody knows who answered",
        "answer",
        "step.answered_by = args.by\n",
        "",
        "test_of_two_who_answer_at_once_one_hears_of_the_other",
    ),
    Fault(
        "stop leaves hints behind",
        "lib/effects",
        "  sessions.withdraw_all(tx)\n  sessions.stop_if_idle(tx)\n",
        "  sessions.stop_if_idle(tx)\n",
    ),
    Fault(
        "a stopping session hints on",
        "lib/dispatch",
        "  if tx.session.status ~= 'active' then return offer_last(tx) end\n",
        "",
    ),
    Fault(
        "stop waits for nobody",
        "lib/sessions",
        "if redis.call('ZCARD', tx.keys.running) > 0 or",
        "if",
    ),
    Fault(
        "resume forgets what was ready",
        "lib/effects",
        "  release_ready(tx)\n  if tx.args.again",
        "  if tx.args.again",
    ),
    Fault(
        "what failed runs under its old address",
        "lib/resume",
        "      programs.start_run(tx, '', node.name)\n",
        "",
    ),
    Fault(
        "late successes are forgotten on resume",
        "core/routing.py",
        '{"": sinks_of(program.body)}',
        '{"": ()}',
    ),
    Fault(
        "what never began is forgotten on resume",
        "core/routing.py",
        "for n in needs if n not in done}",
        "for n in needs if n in set(names)}",
        "test_late_success_in_a_failing_session_counts_when_it_is_resumed",
    ),
    Fault(
        "exit loses to a failure",
        "lib/effects",
        "  end_root(tx, 'exit')\n",
        "  turns.end_early(tx, '', 'exit', tx.args.reason)\n",
        "test_exit_of_a_session_that_is_failing_ends_it_exited",
    ),
    Fault(
        "a session that had done all when its budget ended it is stuck",
        "lib/resume",
        "  if #nodes == 1 then turns.close(tx, '', 'accept', {code = 'done'}) end\n",
        "",
        "test_session_that_had_done_all_when_its_budget_ended_it_completes_at_its_resume",
    ),
)
