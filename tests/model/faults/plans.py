"""Faults in plans: what starts, what counts as done, and what a version is."""

from __future__ import annotations

from tests.model.faults.fault import Fault

RANDOM = "test_a_plan_does_what_the_model_says_whatever_comes_between"

FAULTS = (
    Fault(
        "a word is taken for the fact",
        "lib/plans/progress",
        "if not needed or needed.fact ~= 'accepted' then return true end",
        "if not needed or not (needed.fact == 'accepted' or needed.word == 'completed') then"
        " return true end",
        RANDOM,
    ),
    Fault(
        "a task starts beyond the limit",
        "lib/plans/progress",
        "while head.working < head.at_once and",
        "while head.working <= head.at_once and",
        RANDOM,
    ),
    Fault(
        "an end counts twice",
        "lib/plans/child_ends",
        "if not works then\n",
        "if not works and task.fact ~= 'failed' then\n",
        RANDOM,
    ),
    Fault(
        "an older run ends the newer one",
        "plan_fact",
        "if task.run == args.run then",
        "if task.run >= args.run then",
        "test_the_end_of_an_older_run_changes_nothing",
    ),
    Fault(
        "a version is left out",
        "lib/plans/tasks",
        "redis.call('HINCRBY', tx.keys.plan, 'version', 1)",
        "redis.call('HINCRBY', tx.keys.plan, 'version', plan.head.working == 0 and 2 or 1)",
        RANDOM,
    ),
    Fault(
        "a dropped task stays in the events",
        "lib/plans/tasks",
        "removed = #gone > 0 and gone or nil",
        "removed = nil",
        RANDOM,
    ),
    Fault(
        "dependants do not hear that a task is accepted",
        "lib/plans/task_ends",
        "if other then progress.list_startable(tx, other) end",
        "if other and false then progress.list_startable(tx, other) end",
        RANDOM,
    ),
    Fault(
        "a task is tried once too often",
        "lib/plans/child_ends",
        "task.tries < head.retries",
        "task.tries <= head.retries",
        RANDOM,
    ),
    Fault(
        "an exit is tried again",
        "lib/plans/child_ends",
        "return status == 'failed' and task.tries",
        "return status ~= 'completed' and task.tries",
        RANDOM,
    ),
    Fault(
        "a resumed child is not counted as at work",
        "lib/plans/child_ends",
        "head.working = head.working + 1",
        "head.working = head.working",
        RANDOM,
    ),
    Fault(
        "what a stop kept from starting is forgotten",
        "lib/plans/progress",
        "if task.state == 'starting' then queue(tx, task, '') end",
        "if false then queue(tx, task, '') end",
        "test_a_task_that_a_stop_kept_from_starting_starts_with_the_resume",
    ),
    Fault(
        "an open proposal does not hold the plan",
        "lib/plans/progress",
        "and idle and (head.halted or (head.proposed or 0) == 0) then",
        "and idle then",
        "test_a_proposal_waits_for_a_person_and_holds_the_plan_open",
    ),
    Fault(
        "a proposal may be decided twice",
        "lib/plans/edits",
        "if proposal.status ~= 'open' then",
        "if false then",
        "test_a_proposal_is_decided_once",
    ),
    Fault(
        "a started task may be dropped",
        "lib/plans/edits",
        "if is_started(task) then return refusal(op.id, 'it has started; abort",
        "if false then return refusal(op.id, 'it has started; abort",
        "test_what_has_started_is_frozen_but_for_notes_and_priority",
    ),
    Fault(
        "a cycle is not seen",
        "lib/plans/links",
        "if mark[id] == 1 then",
        "if false then",
        "test_a_cycle_is_refused",
    ),
    Fault(
        "an edit of an older version is carried out",
        "plan_edit",
        "args.version ~= tx.reply.version",
        "false",
        "test_an_edit_of_an_older_version_is_refused_with_the_newer_one",
    ),
    Fault(
        "a report of an older run counts",
        "plan_report",
        "if not works or task.run ~= args.run or",
        "if not works or",
        "test_a_report_of_a_run_that_was_replaced_is_refused",
    ),
    Fault(
        "a report that arrives twice counts twice",
        "plan_report",
        "  if digest then return",
        "  if false then return",
        "test_a_report_that_arrives_twice_counts_once_whatever_came_between",
    ),
    Fault(
        "a failed report stays the word of the next run",
        "lib/plans/progress",
        "task.state, task.run, task.session, task.word = 'starting', task.run + 1, nil, nil",
        "task.state, task.run, task.session = 'starting', task.run + 1, nil",
        "test_the_next_run_begins_without_the_word_of_the_last",
    ),
    Fault(
        "an event is taken for another whose name contains its own",
        "lib/webhooks",
        "return (',' .. tx.session.rings .. ','):find(',' .. event .. ',', 1, true) ~= nil",
        "return tx.session.rings:find(event, 1, true) ~= nil",
        "test_an_event_is_asked_for_by_its_whole_name",
    ),
    Fault(
        "a task that runs again is reported as failed",
        "lib/plans/child_ends",
        "  if may_retry(head, task, status) then\n",
        "  webhooks.enqueue_about_task(tx, 'task_failed', task)\n"
        "  if may_retry(head, task, status) then\n",
        "test_a_task_is_reported_as_failed_after_its_last_run_alone",
    ),
    Fault(
        "a repeated report is an event of its own",
        "plan_report",
        "  if task.word == args.status and task.said == args.digest then",
        "  webhooks.enqueue_about_task(tx, 'reported', task)\n"
        "  if task.word == args.status and task.said == args.digest then",
        "test_a_report_and_its_proposals_are_delivered_without_their_texts",
    ),
    Fault(
        "a proposal has no deadline",
        "lib/plans/progress",
        "record.status == 'open' and record.until_ms and",
        "record.status == 'open!' and record.until_ms and",
        "test_an_open_proposal_is_refused_at_its_deadline_and_the_plan_ends",
    ),
    Fault(
        "the deadline of a proposal undoes a decision",
        "lib/plans/progress",
        "record.status == 'open' and record.until_ms and",
        "record.until_ms and",
        "test_a_proposal_that_was_decided_is_left_alone_by_its_deadline",
    ),
    Fault(
        "a proposal of a stopped plan is refused",
        "lib/plans/progress",
        "if (head.proposed or 0) == 0 or tx.session.status ~= 'active' then return false end",
        "if (head.proposed or 0) == 0 then return false end",
        "test_the_deadline_of_a_proposal_waits_for_a_stopped_plan",
    ),
    Fault(
        "accepted work counts before it is merged",
        "lib/plans/child_ends",
        "elseif merges.is_due(tx, task) then",
        "elseif false then",
        "test_dependants_wait_for_the_merge_and_are_told_the_commit",
    ),
    Fault(
        "a plan ends while work is merged",
        "lib/plans/progress",
        "local works = head.working + (head.merging or 0) > 0",
        "local works = head.working > 0",
        "test_dependants_wait_for_the_merge_and_are_told_the_commit",
    ),
    Fault(
        "two merges of one plan work in its worktree",
        "lib/locks/folders",
        "if is_exclusive(lock) and not is_below(tx, session, root, other) then",
        "if false then",
        "test_merges_of_one_plan_queue_for_their_folder",
    ),
)
