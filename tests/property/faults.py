"""Faults that somebody might make, each as the text that it changes.

The suite must notice them all, most of them in random walks beside the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import resources
from types import ModuleType
from typing import Any, NamedTuple

from redis.exceptions import ResponseError

from app.store_library import text_of


class Fault(NamedTuple):
    name: str
    #: A script of app/lua without its ending, or decide.py.
    file: str
    old: str
    new: str
    #: `walk`, or the test among the programs written by hand.
    found_by: str = "walk"
    #: The walk that is tried first, for it is known to find it.
    seed: int = 0

    def text(self) -> str:
        """The file as it is, without the fault."""
        folder = resources.files("app")
        path = folder / self.file if self.file.endswith(".py") else folder / f"lua/{self.file}.lua"
        return path.read_text(encoding="utf-8")

    def read(self, file: str) -> str:
        """The files of app/lua, one of them with the fault."""
        text = text_of(file)
        return text.replace(self.old, self.new) if file == self.file else text

    def decide(self) -> ModuleType:
        """app.decide with the fault."""
        module = ModuleType("app.decide")
        code = compile(self.text().replace(self.old, self.new), "decide.py", "exec")
        exec(code, module.__dict__)
        return module


FAULTS = [
    # Deadlines of keys
    Fault(
        "what is written of a stopped session is kept for ever",
        "_begin",
        "  elseif not AT_WORK[S.status] then\n    keep_no_longer()\n",
        "",
        "test_answer_to_a_stopped_session_is_kept_no_longer_than_the_rest",
    ),
    # Routes that are remembered
    Fault(
        "routes of a program that is gone are remembered",
        "_begin",
        "routes_kept(PROGRAM .. S.made)",
        "routes_kept(PROGRAM)",
        "test_a_program_that_is_written_anew_is_read_anew",
    ),
    # Fences and nonces
    Fault(
        "settle takes any attempt's word",
        "settle",
        "if not step or step.fence ~= A.fence or step.nonce ~= A.nonce then",
        "if not step then",
        "test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it",
    ),
    Fault(
        "beat keeps a step for whoever asks",
        "beat",
        "step.state ~= 'running' or step.fence ~= A.fence or step.nonce ~= A.nonce then",
        "step.state ~= 'running' then",
        "test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it",
    ),
    Fault(
        "release hands back another's step",
        "release",
        "step.state ~= 'running' or step.fence ~= A.fence or step.nonce ~= A.nonce then",
        "step.state ~= 'running' then",
        "test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it",
    ),
    Fault(
        "the fence does not grow",
        "_ready",
        "step.fence, step.attempt = (step.fence or 0) + 1,",
        "step.fence, step.attempt = step.fence or 1,",
    ),
    Fault(
        "parking grants no new fence", "park", "step.fence + 1, nil, nil", "step.fence, nil, nil"
    ),
    Fault(
        "an answer needs no fence",
        "answer",
        " or step.fence ~= A.fence then",
        " then",
        "test_parking_twice_is_parking_once",
    ),
    Fault(
        "an exit needs no fence",
        "control",
        "step.state ~= 'running' or step.fence ~= A.fence then",
        "step.state ~= 'running' then",
        "test_exit_by_a_step_that_is_not_held_is_refused",
    ),
    # Repetition
    Fault("settle forgets that it settled", "settle", "step.settled = A.fence\n", "\n"),
    Fault(
        "the next claim is lost on replay",
        "settle",
        "  table.insert(step.next, {address",
        "  local _ = ({address",
        seed=20,
    ),
    Fault(
        "replay hands out claims that were lost since",
        "settle",
        " and later.fence == given.fence and later.nonce == given.nonce then",
        " then",
        found_by="test_replay_does_not_hand_out_a_claim_that_was_lost_since",
    ),
    Fault("a claim is not remembered", "claim", "if step.nonce == A.nonce then", "if false then"),
    Fault(
        "a claim is given again after its lease",
        "claim",
        "if step.state ~= 'running' or step.lease <= now then",
        "if step.state ~= 'running' then",
        "test_late_claim_of_a_lease_that_passed_is_superseded",
    ),
    Fault(
        "parking twice hands the step over",
        "park",
        "if step.state == 'parked' and step.fence == A.fence + 1 then",
        "if false then",
    ),
    Fault(
        "a control that is repeated is refused",
        "control",
        "if A.nonce and (' ' .. steered .. ' '):find(' ' .. A.nonce .. ' ', 1, true) then",
        "if false then",
    ),
    Fault(
        "create knows no nonce",
        "create",
        "made_by and made_by == A.fields.nonce",
        "false",
        "test_create_whose_reply_was_lost_finds_its_own_session",
    ),
    Fault(
        "create takes any body for a key",
        "create",
        "known:match('|(.*)$') == A.body and 'exists' or 'conflict'",
        "'exists'",
        "test_key_of_another_body_is_refused",
    ),
    # Claims
    Fault(
        "a running step is claimed",
        "claim",
        "elseif step.state ~= 'ready' then",
        "elseif false then",
    ),
    Fault(
        "a stopped session's step is claimed",
        "claim",
        "if S.status ~= 'active' then",
        "if false then",
    ),
    Fault("a retry is claimed too early", "claim", "elseif early(step) then", "elseif false then"),
    # Deadlines
    Fault(
        "a lease has no deadline",
        "_ready",
        "  redis.call('ZADD', G.leases, step.lease, member(address))\n",
        "",
    ),
    Fault(
        "a question has no deadline",
        "park",
        "redis.call('ZADD', G.leases, step.parked.until_ms, member(address))\n",
        "",
    ),
    Fault(
        "a hint has no deadline",
        "_ready",
        "  redis.call('ZADD', G.ready, now + wait, member(address))\n",
        "",
    ),
    Fault(
        "a retry has no deadline",
        "_ready",
        "    redis.call('ZADD', G.ready, step.due, member(address))\n",
        "",
    ),
    Fault(
        "a session that was begun is moved by the sweep",
        "control",
        "    if load('steps', address).fence then return true end\n",
        "",
        "test_a_session_that_was_begun_stays_at_its_place",
    ),
    Fault(
        "a session gives its folder up between two steps",
        "_locks",
        "    local owner = member(turn_of(block_of(address)))\n",
        "    local owner = member(turn_of(block_of(address)))\n"
        "    if block_of(address) == '' then owner = member(address) end\n",
        "test_what_stands_in_no_loop_holds_its_folder_until_the_session_s_end",
    ),
    # Another program
    Fault(
        "what is not done stays when its program goes",
        "_adopt",
        "  if other.afresh then clear() end\n",
        "",
        "test_a_question_of_the_old_file_is_asked_no_more",
    ),
    Fault(
        "another program is taken over and forgotten",
        "_adopt",
        "'program', other.program, 'schema', other.schema)\n",
        "'schema', other.schema)\n",
        "test_a_step_before_the_one_that_stopped_is_the_next_to_run",
    ),
    Fault(
        "the old program goes while others have it",
        "_adopt",
        "  if redis.call('SCARD', users .. old) == 0 then redis.call('DEL', ",
        "  if true then redis.call('DEL', ",
        "test_the_old_program_stays_for_who_still_has_it",
    ),
    Fault(
        "a program is not known to be used by who took it over",
        "_session",
        "  redis.call('SADD', GLOBAL .. 'users:' .. name, A.session)\n",
        "",
        "test_a_step_before_the_one_that_stopped_is_the_next_to_run",
    ),
    Fault(
        "a session goes on by a plan for what it was before",
        "control",
        "if A.as_of and A.as_of ~= redis.call('HGET', K.session, 'updated') then",
        "if false then",
        "test_a_session_that_moved_on_meanwhile_is_looked_at_again",
    ),
    Fault(
        "who loses a race takes the program over",
        "control",
        "local allowed = false\n",
        "if A.adopts then adopt(A.adopts) end\nlocal allowed = false\n",
        "test_who_is_aborted_meanwhile_takes_nothing_over",
    ),
    Fault(
        "a resume that finds its budget used up takes the program over",
        "control",
        "  local over = spent_before(A.budget or {})\n",
        "  if A.adopts then adopt(A.adopts) end\n  local over = spent_before(A.budget or {})\n",
        "test_a_resume_that_would_be_refused_takes_nothing_over",
    ),
    Fault(
        "a resume that is repeated takes the program over twice",
        "control",
        "if A.nonce and (' ' .. steered .. ' '):find(' ' .. A.nonce .. ' ', 1, true) then\n",
        "if A.nonce and (' ' .. steered .. ' '):find(' ' .. A.nonce .. ' ', 1, true) then\n"
        "  if A.adopts then emit('session.adopted', '') end\n",
        "test_a_resume_whose_answer_was_lost_is_done_once",
    ),
    Fault(
        "a ceiling that is named for a loop under way is passed over",
        "control",
        "  if A.max_iterations and not A.again then raise_ceilings() end\n",
        "",
        "test_the_ceiling_of_a_loop_that_was_stopped_is_the_one_that_is_named",
    ),
    Fault(
        "nobody knows who answered",
        "answer",
        "step.answered_by = A.by\n",
        "",
        "test_of_two_who_answer_at_once_one_hears_of_the_other",
    ),
    Fault(
        "a folder is shared with strangers",
        "_locks",
        "if their_root ~= root or other == session then return false end",
        "if other == session then return false end",
        "test_a_stranger_waits_until_all_of_the_tree_has_released_the_folder",
    ),
    Fault(
        "a folder is shared by two loops of a session",
        "_locks",
        "if their_root ~= root or other == session then return false end",
        "if their_root ~= root then return false end",
        "test_loops_of_one_session_take_turns_whatever_its_children_hold",
    ),
    Fault(
        "a folder is shared by nobody",
        "_locks",
        "        lock.take = has_room(lock.name, member(address))\n",
        "        lock.take = false\n",
        "test_subflows_in_one_folder_work_side_by_side",
    ),
    Fault(
        "who takes a folder calls nobody of its tree",
        "_locks",
        "      if lock.turn and has_kin() then call_kin(lock.name) end\n",
        "",
        "test_who_takes_a_folder_calls_those_of_its_tree_who_wait_behind_others",
    ),
    Fault(
        "who gives a folder up that its tree holds calls nobody of that",
        "_locks",
        "  if name:sub(1, 7) == 'folder:' and has_kin() then call_kin(name) end\n",
        "",
        "test_loops_of_one_session_take_turns_whatever_its_children_hold",
    ),
    Fault(
        "those of a tree jump the line for a folder that is free",
        "_locks",
        "  if redis.call('ZLEXCOUNT', G.holds, low, high) == 0 then return end   "
        "-- whoever is next in line has been called\n",
        "",
        "test_those_of_a_tree_jump_no_line_for_a_folder_that_nobody_holds",
    ),
    Fault(
        "who was called and came too late is not called again",
        "_locks",
        "    for _, name in ipairs(step.waits) do redis.call('HDEL', G.called, "
        "called_as(name, member(address))) end\n",
        "",
        "test_a_folder_is_one_tree_s_whatever_happens",
    ),
    Fault(
        "the audit takes what a tree shares for two owners",
        "fsck_locks",
        "if other < line and not shared and lives(two) then",
        "if other < line and lives(two) then",
        "test_whoever_waits_is_told_of_all_who_share_the_folder",
    ),
    Fault(
        "the audit frees the folder of a turn that is yet to end",
        "fsck_locks",
        "turn_state(one, around.id) == 'closing'",
        "turn_state(one, around.id) == 'never'",
        "test_a_folder_is_one_tree_s_whatever_happens",
    ),
    Fault(
        "slots that nobody took add up",
        "_locks",
        "  if now - slot > LATE_MS then return 1, now end\n",
        "",
        "test_slots_do_not_add_up_while_nobody_works",
    ),
    Fault(
        "nobody is called for a slot to come",
        "_locks",
        "  if free <= 0 then return end\n",
        "  if free <= 0 or slots < 1 then return end\n",
        "test_slots_do_not_add_up_while_nobody_works",
    ),
    Fault(
        "who waits for a pace is not told of another one",
        "limit",
        "call_next(A.key)\n",
        "",
        "test_the_sweep_finds_who_waits_for_an_old_pace",
    ),
    Fault(
        "a session stands in the line of a limited key with all that it has",
        "_ready",
        "      if not must and window_full(key) then return key end\n",
        "",
        "test_a_small_session_is_not_behind_many_with_its_key",
    ),
    Fault(
        "a place in the line of a limited key is never given back",
        "_ready",
        "  if stays or not step.places then return end\n",
        "  do return end\n",
        "test_a_limit_that_is_set_later_holds_a_session_to_its_window",
    ),
    Fault(
        "priority counts for nothing in the line of a limited key",
        "_locks",
        "string.format('%d%014d', priority, ",
        "string.format('%d%014d', 5, ",
        "test_who_has_priority_goes_first_in_the_line_of_a_limited_key",
    ),
    Fault(
        "who was called and cannot come keeps all others waiting",
        "_locks",
        "      save('steps', address)\n      call_next(name)\n",
        "      save('steps', address)\n",
        "test_who_cannot_come_idles_a_key_for_a_moment_only",
    ),
    Fault(
        "two who need two slots refuse each other for ever",
        "_locks",
        "    if came then let_others_go(address, step.waits) end\n",
        "",
        "test_two_who_need_two_slots_do_not_keep_each_other_from_both",
    ),
    Fault(
        "who waits is not in the line of a limit that is set meanwhile",
        "_locks",
        "    if lock.take ~= nil and not step.tickets[lock.name] then\n",
        "    if lock.take ~= nil and not step.tickets[lock.name] and not step.blocked then\n",
        "test_who_waits_stands_in_the_line_of_a_limit_that_is_set_meanwhile",
    ),
    Fault(
        "who was passed over is called again before it has come",
        "_locks",
        "  redis.call('HSET', G.called, called_as(lock, who), -now - NEVER_MS)\n",
        "",
        "test_who_cannot_come_idles_a_key_for_a_moment_only",
    ),
    Fault(
        "a beat extends the deadline",
        "beat",
        "math.min(now + A.lease_ms, step.deadline + GRACE_MS)",
        "now + A.lease_ms",
    ),
    Fault(
        "a lease outlives its deadline",
        "_ready",
        "math.min(now + A.lease_ms, step.deadline + GRACE_MS)",
        "now + A.lease_ms",
    ),
    Fault("a living attempt is given up", "expire", "if step.lease > now and (", "if false and ("),
    Fault(
        "a timeout counts as a loss",
        "expire",
        "if (step.heard or 0) >= step.deadline then",
        "if false then",
        "test_beats_do_not_extend_the_deadline",
    ),
    Fault(
        "whoever was lost long ago took too long",
        "expire",
        "if (step.heard or 0) >= step.deadline then",
        "if now >= step.deadline + GRACE_MS then",
        "test_whoever_is_found_late_was_lost_and_did_not_take_too_long",
    ),
    Fault(
        "a loss counts as a failure",
        "expire",
        "tally(address, 'attempts_lost')",
        "tally(address, 'attempts_failed')",
    ),
    Fault(
        "no step is ever poison",
        "expire",
        "step.lost > LOST_MAX",
        "false",
        "test_step_that_kills_its_workers_is_poison",
    ),
    Fault(
        "a question that cannot be written is asked by half",
        "park",
        "cjson.encode(step)   -- what",
        "-- what",
        "test_question_that_cannot_be_written_is_not_asked_by_half",
    ),
    Fault(
        "a question is closed before its time",
        "expire",
        "if wait.until_ms > now then",
        "if false then",
        "test_question_that_nobody_answers_fails_at_its_deadline",
    ),
    Fault("a restart has no grace", "due", "now >= grace and batch(G.leases)", "batch(G.leases)"),
    Fault(
        "a timer waits for the grace of leases",
        "due",
        "or timers()",
        "or {}",
        "test_a_timer_waits_for_no_grace_after_a_restart",
    ),
    Fault(
        "in the time of grace all that is parked is late",
        "due",
        "return parked and parked.on == 'wait'",
        "return parked",
        "test_a_timer_waits_for_no_grace_after_a_restart",
    ),
    Fault(
        "a clock that steps back keeps all from looking",
        "due",
        "if last <= now and now - last < A.every_ms then",
        "if now - last < A.every_ms then",
        "test_a_clock_that_steps_back_keeps_nobody_from_looking",
    ),
    Fault(
        "who makes room waits behind who needs some",
        "due",
        "if errand:sub(1, 7) == 'forget|' then table",
        "do table",
        "test_what_makes_room_is_found_whatever_stands_before_it",
    ),
    Fault(
        "what a child uses brings its deleted parent back",
        "_budget",
        "    if not told[3] then return end",
        "",
        "test_what_a_child_uses_brings_nothing_of_a_deleted_parent_back",
    ),
    Fault(
        "a child that a user goes on with ends with its parent's end of before",
        "control",
        "    redis.call('ZREM', G.errands, 'abort|' .. A.member)\n",
        "",
        "test_a_child_that_a_user_resumed_stays_at_work",
    ),
    Fault(
        "what a clock that steps back leaves in the future waits for it",
        "due",
        "if last > now then step_back() end",
        "",
        "test_a_dead_workers_step_runs_again_a_lease_after_the_clock_stepped_back",
    ),
    Fault(
        "what is begun after the clock stepped back is taken as begun before",
        "due",
        "  if by <= 0 then return end\n",
        "",
        "test_what_was_claimed_after_the_clock_stepped_back_is_left_alone",
    ),
    Fault(
        "a timer waits for the time that was",
        "due",
        "  if step.parked then step.parked.until_ms = step.parked.until_ms - by end\n",
        "",
        "test_a_wait_is_no_longer_because_the_clock_stepped_back",
    ),
    Fault(
        "who called exit works on until the time of that comes again",
        "beat",
        " and exited <= now and",
        " and",
        "test_who_called_exit_has_no_more_than_its_moment_when_the_clock_steps_back",
    ),
    Fault(
        "who was called for a lock keeps it until that time comes again",
        "due",
        "if tonumber(called[i + 1]) > now then redis.call('HSET', G.called",
        "if false then redis.call('HSET', G.called",
        "test_who_was_called_for_a_lock_keeps_it_no_longer_when_the_clock_steps_back",
    ),
    # Retries
    Fault(
        "a retry is not counted",
        "_outcome",
        "step.failed = (step.failed or 0) + 1",
        "step.failed = step.failed or 0",
    ),
    Fault(
        "busy for ever",
        "_outcome",
        "step.busy = before + 1",
        "step.busy = before",
        seed=21,
    ),
    Fault(
        "busy in an ended turn",
        "_outcome",
        "A.busy.tries or not turns_open(block_of(address))",
        "A.busy.tries",
        seed=50,
    ),
    Fault(
        "back-off does not grow",
        "_outcome",
        "* 2 ^ (step.failed - 1)",
        "* 1",
        seed=53,
    ),
    Fault(
        "what ends is tried again",
        "_outcome",
        "step.failed <= r.retries and turns_open(block_of(address))",
        "step.failed <= r.retries",
        seed=50,
    ),
    Fault(
        "retries are one too many", "decide.py", "step.retry.retries,", "step.retry.retries + 1,"
    ),
    # Joins
    Fault(
        "a join fires one too early",
        "_turns",
        "< needed then return false end",
        "< needed - 1 then return false end",
    ),
    Fault(
        "a join is a counter",
        "_turns",
        "  if redis.call('ZADD', K.arrived, 'NX', 0, join .. '<' .. name) == 0 then return",
        "  do return redis.call('HINCRBY', K.session, 'joined:' .. join, 1) >= needed end\n"
        "  if true then return",
        "test_late_success_in_a_failing_session_counts_when_it_is_resumed",
    ),
    Fault(
        "joins of all runs are one",
        "_anew",
        "name == '' and block .. '$' or turn_address(block, name, run_of(block, name))",
        "name == '' and block .. '$' or turn_address(block, name, 1)",
        "test_what_runs_anew_meets_what_does_not_in_a_join_of_its_own",
    ),
    Fault(
        "a block ends with its first open end",
        "decide.py",
        '"sinks": len(sinks_of(block))',
        '"sinks": 1',
    ),
    Fault(
        "a check that fails ends its loop", "decide.py", " and step.action is not Action.CHECK", ""
    ),
    Fault("an empty for_each never arrives", "_turns", "if width == 0 then", "if false then"),
    Fault(
        "a for_each ends with its first item",
        "_turns",
        "joined(id .. '#', item, load('turns', id).width)",
        "joined(id .. '#', item, 1)",
    ),
    # Turns
    Fault(
        "a turn closes over what runs",
        "_turns",
        "if redis.call('ZLEXCOUNT', K.running, below(turn)) == 0 then",
        "if true then",
    ),
    Fault(
        "a turn closes over its children",
        "_turns",
        "  if abort_children(turn) then return end\n",
        "  abort_children(turn)\n",
    ),
    Fault(
        "children of a turn that ends are left alone",
        "_turns",
        "      owe('abort', child)\n      table.insert(answer.abort, child)\n    end\n  end\n"
        "  return working",
        "    end\n  end\n  return working",
    ),
    Fault(
        "a turn waits for the children of others",
        "_turns",
        "redis.call('ZRANGEBYLEX', K.born, below(turn))",
        "redis.call('ZRANGEBYLEX', K.born, '-', '+')",
        seed=20,
    ),
    Fault(
        "a child's end is heard by the session alone",
        "control",
        "close_around(A.address and block_of(A.address) or '')",
        "close_around('')",
        "test_a_loop_that_breaks_releases_nothing_while_a_child_below_it_works",
    ),
    Fault(
        "nobody knows where a child was born",
        "create",
        "  redis.call('ZADD', A.parent.base .. 'born', 0, A.parent.address .. '<' .. A.session)\n",
        "",
        "test_a_child_that_is_born_while_its_loop_ends_ends_with_it",
    ),
    Fault(
        "a child is born into a session that stops",
        "create",
        "'status') == 'active'\n  if not",
        "'status') ~= ''\n  if not",
        "test_a_stop_that_comes_before_a_child_is_born_fails_nobody",
    ),
    Fault(
        "a stop does not wait for children",
        "_session",
        " or children_at_work() then return end\n",
        " then return end\n",
    ),
    Fault(
        "a turn that ends leaves its steps ready",
        "_turns",
        "if step.state ~= 'running' then cancel(address, step) end",
        "",
    ),
    Fault(
        "inner turns outlive the outer one",
        "_turns",
        "  close_below(id, low, high, verdict == 'exit' and 'exit' or 'cancelled', reason)\n",
        "",
    ),
    Fault(
        "a loop turns once too often",
        "_turns",
        "if iteration >= turn.max then",
        "if iteration > turn.max then",
    ),
    Fault(
        "what fails at once starts its neighbours",
        "_turns",
        "  if ended(block) then return end\n  local r, run",
        "  local r, run",
        "test_nothing_starts_beside_a_loop_that_fails_at_once",
    ),
    Fault("a retried loop spends no retry", "_turns", "turn.left - 1", "turn.left"),
    Fault(
        "who is handed back does not close the turn",
        "_outcome",
        "    cancel(address, step)\n    close_around(block_of(address))\n",
        "    cancel(address, step)\n",
    ),
    Fault(
        "what parks too late releases nothing",
        "park",
        "  dispatch()\n",
        "",
        "test_park_in_a_closing_loop_hands_the_step_back_and_goes_on",
    ),
    # Decisions
    Fault(
        "a condition is not looked at",
        "_turns",
        "  if r.given and not is_meant(block, r.given) then",
        "  if false then",
    ),
    Fault(
        "a condition takes any verdict",
        "_turns",
        " and step.verdict == given.verdict\n",
        " and step.verdict\n",
        seed=81,
    ),
    Fault(
        "who failed still decides",
        "_turns",
        "  return step and step.state == 'succeeded' and",
        "  return step and",
        seed=67,
    ),
    Fault(
        "an older answer decides",
        "_turns",
        "step_address(home, given.node, run_of(home, given.node))",
        "step_address(home, given.node, 1)",
        "test_what_failed_is_decided_by_the_newest_answer",
    ),
    Fault(
        "a skipped step never arrives",
        "_turns",
        "{word = 'skipped', reason = reason, fence = 0})\n  arrive(block, name)\n",
        "{word = 'skipped', reason = reason, fence = 0})\n",
    ),
    Fault(
        "a skipped loop never arrives",
        "_turns",
        "{verdict = 'skipped', iterations = 0, reason = reason})\n  arrive(block, name)\n",
        "{verdict = 'skipped', iterations = 0, reason = reason})\n",
    ),
    Fault(
        "a skipped step is not told",
        "_turns",
        "  emit('step.settled', address, {word = 'skipped', reason = reason, fence = 0})\n",
        "",
    ),
    Fault(
        "a condition is lost on the way",
        "decide.py",
        'route["given"] = node.given.model_dump()',
        "pass",
    ),
    Fault(
        "continue ends the loop",
        "_outcome",
        "if r.ends == 'iteration' and verdict == 'accept' then",
        "if false then",
        seed=35,
    ),
    Fault(
        "continue changes nothing",
        "_outcome",
        "    return iteration_done(turn_of(block), iteration_of(block), "
        "{code = 'condition', at = address,\n"
        "      text = 'the rest of the iteration was passed over'})\n",
        "    return arrive(block, name_of(address))\n",
        seed=41,
    ),
    Fault(
        "continue turns twice",
        "_outcome",
        "      text = 'the rest of the iteration was passed over'})\n",
        "      text = '', iteration_done(turn_of(block), iteration_of(block))})\n",
        seed=35,
    ),
    Fault(
        "what does not continue continues",
        "_outcome",
        "if r.ends == 'iteration' and verdict == 'accept' then",
        "if r.ends == 'iteration' then",
        seed=134,
    ),
    # Going back
    Fault(
        "what never began gets a new number",
        "_anew",
        "if node.name ~= '' and end_run(node.name) then",
        "if node.name ~= '' and (end_run(node.name) or true) then",
    ),
    Fault(
        "what runs anew leaves its old run open",
        "_anew",
        "    if turn and turn.state ~= 'closed' then anew.supersede(id, turn) end\n",
        "",
    ),
    Fault(
        "what runs anew leaves its old steps ready",
        "_anew",
        "  cancel_below(turn)\n",
        "",
    ),
    Fault(
        "going back forgets what is done",
        "_anew",
        "      for _, need in ipairs(node.done) do full = joined(join, need, needs) end\n",
        "",
    ),
    Fault(
        "going back loses the iteration",
        "_anew",
        "  local inside = id .. '[' .. level.iteration .. ']'\n",
        "  local inside = id .. '[1]'\n",
        seed=46,
    ),
    Fault(
        "a limit does not count on",
        "_anew",
        "  if #inside > 0 then close_if_over(block) end\n",
        "",
        seed=46,
    ),
    Fault(
        "a rewound run remembers nothing",
        "_anew",
        "opened = level.iteration, kept = level.kept}",
        "opened = level.iteration, kept = {}}",
        "test_what_comes_after_a_point_runs_again_and_nothing_else",
    ),
    Fault(
        "a rewound run forgets the iterations before it",
        "_ready",
        "      found[id], id = turn.origin, turn.origin.run\n",
        "      id = turn.origin.run\n",
        "test_what_comes_after_a_point_runs_again_and_nothing_else",
    ),
    Fault(
        "a rewound decision is not known",
        "_turns",
        "if origin and origin.opened == iteration_of(block) and origin.kept[name] then",
        "if false then",
        "test_what_was_decided_before_the_point_is_still_decided",
    ),
    Fault(
        "a list is lost on the way back",
        "_anew",
        "  redis.call('HSET', K.widths, to, width)\n",
        "",
        "test_a_list_that_was_made_before_the_point_is_worked_on_again",
    ),
    Fault(
        "what closes is forgotten by a stop",
        "control",
        "    if turn.state == 'closing' then try_close(id, turn) end\n",
        "",
        "test_a_turn_whose_child_stopped_with_the_session_closes_at_its_resume",
    ),
    # What is told
    Fault(
        "the end of a step is not told",
        "_outcome",
        "  emit('step.settled', address,",
        "  local _ = (function() end)('step.settled', address,",
    ),
    Fault(
        "a cancellation is told twice",
        "_turns",
        "  emit('step.cancelled', address)\n",
        "  emit('step.cancelled', address) emit('step.cancelled', address)\n",
    ),
    Fault(
        "an iteration is not written",
        "_turns",
        "redis.call('RPUSH', K.ledger, told .. used_by(turn))",
        "redis.call('LLEN', K.ledger) + 1",
    ),
    Fault(
        "an iteration that ends early is not written",
        "_turns",
        "  if id ~= '' and not turn.each then record_iteration(",
        "  if false then record_iteration(",
    ),
    Fault("a step is not counted", "_outcome", "  note_use('steps', count('steps'))\n", ""),
    # Stop and go
    Fault(
        "stop leaves hints behind",
        "control",
        "  forget_hints()\n  stop_if_idle()\n",
        "  stop_if_idle()\n",
    ),
    Fault(
        "a stopping session hints on", "_ready", "  if S.status ~= 'active' then return end\n", ""
    ),
    Fault("stop waits for nobody", "_session", "or redis.call('ZCARD', K.running) > 0 or", "or"),
    Fault(
        "resume forgets what was ready",
        "control",
        "  release_ready()\n  if A.again",
        "  if A.again",
    ),
    Fault(
        "what failed runs under its old address",
        "_anew",
        "      count_run('', node.name)\n",
        "",
    ),
    Fault(
        "late successes are forgotten on resume",
        "decide.py",
        '{"": sinks_of(program.body)}',
        '{"": ()}',
    ),
    Fault(
        "what never began is forgotten on resume",
        "decide.py",
        "for n in needs if n not in done}",
        "for n in needs if n in set(names)}",
        "test_late_success_in_a_failing_session_counts_when_it_is_resumed",
    ),
    Fault(
        "exit loses to a failure",
        "control",
        "  end_root('exit')\n",
        "  end_turn('', 'exit', A.reason)\n",
        "test_exit_of_a_session_that_is_failing_ends_it_exited",
    ),
    # What is used, and may be
    Fault(
        "a cost told by a heartbeat counts again at the end",
        "_budget",
        "usage[name] - (step[field] or 0)",
        "usage[name] - (name == 'cost_micros' and 0 or step[field] or 0)",
    ),
    Fault(
        "tokens told by a heartbeat count again at the end",
        "_budget",
        "usage[name] - (step[field] or 0)",
        "usage[name] - (name == 'cost_micros' and step[field] or 0)",
    ),
    Fault(
        "a late heartbeat counts again",
        "_budget",
        "if goes_on then step[field] =",
        "if false then step[field] =",
    ),
    Fault(
        "tokens are counted at the end alone",
        "beat",
        "if use_of_attempt(address, step, A.spent, true) then\n",
        "if A.spent then A.spent.tokens_in, A.spent.tokens_out = 0, 0 end\n"
        "if use_of_attempt(address, step, A.spent, true) then\n",
    ),
    Fault(
        "what an attempt told is taken off the next one's",
        "_ready",
        "  step.told, step.told_in, step.told_out = nil, nil, nil\n",
        "",
        seed=99,
    ),
    Fault(
        "a settle that comes again is counted again",
        "settle",
        "if step.settled == A.fence then\n",
        "if step.settled == A.fence then\n  use_of_attempt(address, step, A.usage)\n  flush()\n",
    ),
    Fault(
        "what a released attempt used is forgotten",
        "release",
        "use_of_attempt(address, step, A.usage)\n",
        "",
    ),
    Fault(
        "what still ran when its loop ended is missing in the ledger",
        "_budget",
        "      if turn.entry then amend(turn.entry, turn) end\n",
        "",
        seed=48,
    ),
    Fault(
        "an iteration is charged with the one before",
        "_turns",
        "    turn.cost_micros, turn.tokens_in, turn.tokens_out = nil, nil, nil\n",
        "",
    ),
    Fault(
        "a budget may be passed",
        "_budget",
        "used >= limit then reached",
        "used > limit then reached",
    ),
    Fault(
        "a stopping session ends for its budget",
        "_budget",
        "  if reached and S.status == 'active' then end_spent() end\n",
        "  if reached then end_spent() end\n",
        "test_a_session_that_is_to_stop_stops_though_its_last_step_used_its_budget_up",
    ),
    Fault(
        "an iteration is begun that the budget does not have",
        "_turns",
        "  if iteration < turn.max and spent_up(1) then return end_spent() end\n",
        "",
    ),
    Fault(
        "a loop is begun that the budget does not have",
        "_turns",
        "  if max > 0 and spent_up(0) then return end_spent() end\n",
        "",
    ),
    Fault("the clock runs while stopped", "control", "  stop_clock()\n", ""),
    Fault("the clock runs after the end", "_session", "  stop_clock()\n", ""),
    Fault("a resumed session has no clock", "control", "  go_on_counting()\n", ""),
    Fault(
        "time before the stop is given back",
        "_budget",
        "start_clock(math.max(0, budget().wall_ms - S.waited))",
        "start_clock(budget().wall_ms)",
    ),
    Fault(
        "a passed budget is no hindrance to a resume",
        "control",
        "  local over = spent_before(A.budget or {})\n  if over then\n",
        "  local over = spent_before(A.budget or {})\n  if false then\n",
    ),
    # Stops of stages
    Fault(
        "a stage that ended without acceptance is no stop",
        "_turns",
        "  if opens_circuit(id, turn, r) then return end\n",
        "",
    ),
    Fault(
        "a retry is taken while the circuit is open",
        "_budget",
        "here >= (limits.stage_stops or math.huge)",
        "here > (limits.stage_stops or math.huge)",
        "test_retry_that_the_stages_limit_forbids_is_not_taken",
    ),
    Fault(
        "stops of all stages are not looked at",
        "_budget",
        "  if all < (limits.stops or math.huge) then return end\n",
        "  if true then return end\n",
        "test_stops_of_all_stages_count_together_also_of_those_passed_over",
    ),
    Fault(
        "a loop within a stage counts as one",
        "_turns",
        "  if block_of(id) ~= '' then return false end\n",
        "",
        "test_loops_within_a_stage_are_no_stages",
    ),
    Fault(
        "a stage at its limit is run again by a resume",
        "_budget",
        "note_use(name, most_stops())",
        "note_use(name, 0)",
        "test_retry_that_the_stages_limit_forbids_is_not_taken",
    ),
    # No progress
    Fault(
        "a loop that stands still goes on",
        "_turns",
        "  if still then\n",
        "  if false then\n",
        "test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told",
    ),
    Fault(
        "a loop that moved stands still",
        "_turns",
        "turn.signature == A.signature and turn.same + 1 or 1",
        "(turn.same or 0) + 1",
        "test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told",
    ),
    Fault(
        "a loop ends one turn too early",
        "_turns",
        "turn.same > most",
        "turn.same >= most",
        "test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told",
    ),
    Fault(
        "an inner loop's judge speaks for the outer one",
        "_turns",
        "  if A.ledger ~= id then return false end\n",
        "  if not A.ledger then return false end\n",
        seed=38,
    ),
    # The transcript
    Fault(
        "what was said is written again with each repetition",
        "settle",
        "if step.settled == A.fence then\n",
        "if step.settled == A.fence then\n  write_transcript(address)\n",
    ),
    Fault(
        "what was said is not told",
        "_outcome",
        "emit('transcript.added', address, {",
        "local _ = ({",
    ),
    Fault(
        "only the first thing that was said is written",
        "_outcome",
        "for n = 5, #ARGV do",
        "for n = 5, math.min(5, #ARGV) do",
    ),
    # Conversations
    Fault(
        "two speak in one conversation at once", "_locks", "  if r.talk then\n", "  if false then\n"
    ),
    Fault(
        "a step of a conversation goes on without its lock",
        "decide.py",
        "(step.limits or step.conversation)",
        "step.limits",
    ),
    Fault(
        "a failed attempt leads the conversation on",
        "settle",
        "use_of_attempt(address, step, A.usage)\n",
        "use_of_attempt(address, step, A.usage)\nkeep_thread(address)\n",
    ),
    Fault(
        "a conversation cannot be forgotten",
        "_outcome",
        "    redis.call('HDEL', K.threads, talk)\n",
        "",
    ),
    Fault(
        "a conversation begins anew each time",
        "_ready",
        "redis.call('HGET', K.threads, talk)",
        "nil",
    ),
    Fault(
        "a session that is sent back remembers what was said after that",
        "_anew",
        "  if threads then talk_from(threads) end\n",
        "",
        seed=56,
    ),
    Fault(
        "a session that had done all when its budget ended it is stuck",
        "_anew",
        "  if #joins == 1 then close_turn('', 'accept', {code = 'done'}) end\n",
        "",
        "test_session_that_had_done_all_when_its_budget_ended_it_completes_at_its_resume",
    ),
    Fault(
        "whoever is said to be gone, all attempts end",
        "expire",
        "if step.lease > now and (not A.gone or step.owner ~= A.gone) then",
        "if step.lease > now and not A.gone then",
        "test_a_lease_of_who_is_gone_is_not_waited_for",
    ),
    # The window
    Fault(
        "slots of the window leak", "_ready", "== 1 then freed[queue] = true end", "== 1 then end"
    ),
    Fault(
        "the window of one queue counts others",
        "_ready",
        "ZLEXCOUNT', K.hinted, range_of(queue .. '<'))",
        "ZLEXCOUNT', K.hinted, range_of(queue))",
    ),
    Fault("there is no window", "_ready", ">= tonumber(S.window)", ">= 1000000"),
    Fault(
        "a retry is hinted before its time", "_ready", "  if early(step) then", "  if false then"
    ),
    Fault(
        "the settler is granted any step",
        "_ready",
        " and goes_along(address) then",
        " then",
    ),
    Fault(
        "the settler is granted any step that stands in line",
        "_ready",
        "if not address or address == A.address or not goes_along(address) then return end",
        "if not address or address == A.address then return end",
    ),
    Fault(
        "who came into the line twice is granted though it is hinted",
        "_ready",
        "    and not redis.call('ZSCORE', K.hinted, name .. '<' .. address)\n",
        "",
        found_by="test_a_settler_is_not_granted_what_stands_in_line_and_is_hinted",
    ),
    Fault(
        "a settler is granted its own step once more, from the line",
        "_ready",
        "if not address or address == A.address or not goes_along(address) then return end",
        "if not address or not goes_along(address) then return end",
        found_by="test_a_settler_is_not_granted_its_own_step_again_from_the_line",
    ),
    Fault(
        "the settler is granted from the line what waits for its time",
        "_ready",
        "  return step.state == 'ready' and not early(step)\n",
        "  return true\n",
        found_by="test_a_settler_takes_nothing_from_the_line_that_waits_for_its_time",
    ),
    # Ends
    Fault(
        "an ended session stays for ever",
        "_session",
        "  keep_s = S.retention + (owed and EXPORT_S or NET_S)\n",
        "",
    ),
    Fault(
        "a lease outlives its step",
        "_outcome",
        "  redis.call('ZREM', G.leases, member(address))\n",
        "",
    ),
    Fault(
        "a resumed session is still forgotten",
        "_session",
        "  for _, key in pairs(K) do redis.call('PERSIST', key) end\n",
        "",
        "test_resumed_session_is_kept_until_it_ends_again",
    ),
    Fault(
        "delete leaves the program",
        "delete",
        "== 0 then redis.call('DEL', PROGRAM) end",
        "== 0 then end",
        "test_delete_frees_everything",
    ),
]


def noticed(tries: Iterator[Callable[[], Any]]) -> bool:
    """Whether one of them fails as a test fails; a script that breaks is no proof."""
    for attempt in tries:
        try:
            attempt()
        except (AssertionError, KeyError):
            return True
        except ResponseError as broken:
            if "stack overflow" not in str(broken):
                raise
            return True
    return False
