"""Faults in a resume that takes over another program."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "what is not done stays when its program goes",
        "lib/migrate",
        "  if other.afresh then clear(tx) end\n",
        "",
        "test_a_question_of_the_old_file_is_asked_no_more",
    ),
    Fault(
        "another program is taken over and forgotten",
        "lib/migrate",
        "'program', other.program, 'schema', other.schema)\n",
        "'schema', other.schema)\n",
        "test_a_step_before_the_one_that_stopped_is_the_next_to_run",
    ),
    Fault(
        "the old program goes while others have it",
        "lib/migrate",
        "  if redis.call('SCARD', users .. old) == 0 then redis.call('DEL', ",
        "  if true then redis.call('DEL', ",
        "test_the_old_program_stays_for_who_still_has_it",
    ),
    Fault(
        "a program is not known to be used by who took it over",
        "lib/programs",
        "  redis.call('SADD', tx.prefix .. 'users:' .. name, tx.args.session)\n",
        "",
        "test_a_step_before_the_one_that_stopped_is_the_next_to_run",
    ),
    Fault(
        "a session goes on by a plan for what it was before",
        "lib/checks",
        "if args.as_of and args.as_of ~= redis.call('HGET', tx.keys.session, 'updated') then",
        "if false then",
        "test_a_session_that_moved_on_meanwhile_is_looked_at_again",
    ),
    Fault(
        "who loses a race takes the program over",
        "lib/checks",
        "  local allowed = contains(args.from, status)\n",
        "  local allowed = contains(args.from, status)\n"
        "  if args.adopts then redis.call('HSET', tx.keys.session, 'program', "
        "args.adopts.program) end\n",
        "test_who_is_aborted_meanwhile_takes_nothing_over",
    ),
    Fault(
        "a resume that finds its budget used up takes the program over",
        "lib/checks",
        "  local over = budgets.find_spent(tx, tx.args.budget or {})\n",
        "  if tx.args.adopts then redis.call('HSET', tx.keys.session, 'program', "
        "tx.args.adopts.program) end\n"
        "  local over = budgets.find_spent(tx, tx.args.budget or {})\n",
        "test_a_resume_that_would_be_refused_takes_nothing_over",
    ),
    Fault(
        "a resume that is repeated takes the program over twice",
        "control",
        "  if checks.is_repeated(tx) then\n",
        "  if checks.is_repeated(tx) then\n"
        "    if args.adopts then redis.call('XADD', tx.keys.events, '*', 't', "
        "'session.adopted', 'at', tx.clock, 'a', '', 'd', '') end\n",
        "test_a_resume_whose_answer_was_lost_is_done_once",
    ),
    Fault(
        "a ceiling that is named for a loop under way is passed over",
        "lib/effects",
        "  if tx.args.max_iterations and not tx.args.again then raise_limits(tx) end\n",
        "",
        "test_the_ceiling_of_a_loop_that_was_stopped_is_the_one_that_is_named",
    ),
)
