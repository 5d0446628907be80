"""Faults in folder locks."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a folder is shared with strangers",
        "lib/locks/folders",
        "if their_root ~= root or other == session then conflict",
        "if other == session then conflict",
        "test_a_stranger_waits_until_all_of_the_tree_has_released_the_folder",
    ),
    Fault(
        "a folder is shared by two loops of a session",
        "lib/locks/folders",
        "if their_root ~= root or other == session then conflict",
        "if their_root ~= root then conflict",
        "test_loops_of_one_session_take_turns_whatever_its_children_hold",
    ),
    Fault(
        "a folder is shared by nobody",
        "lib/locks/precedence",
        "if conflict or covered then return not conflict, conflict end",
        "if conflict or covered then return false, conflict end",
        "test_subflows_in_one_folder_work_side_by_side",
    ),
    Fault(
        "who takes a folder calls nobody of its tree",
        "lib/locks/locks",
        "      if lock.turn and calls.has_kin(tx) then calls.call_kin(tx, lock.name) end\n",
        "",
        "test_who_takes_a_folder_calls_those_of_its_tree_who_wait_behind_others",
    ),
    Fault(
        "who gives a folder up that its tree holds calls nobody of that",
        "lib/locks/locks",
        "  if folders.is_folder(name) and calls.has_kin(tx) then calls.call_kin(tx, name) end\n",
        "",
        "test_loops_of_one_session_take_turns_whatever_its_children_hold",
    ),
    Fault(
        "those of a tree jump the line for a folder that is free",
        "lib/locks/calls",
        "    if is_held then tickets.each(tx, ",
        "    if true then tickets.each(tx, ",
        "test_those_of_a_tree_jump_no_line_for_a_folder_that_nobody_holds",
    ),
    Fault(
        "a folder above is no obstacle",
        "lib/locks/folders",
        " and not folders.lies_below(lock, name) and not folders.lies_below(name, lock) then",
        " and not folders.lies_below(lock, name) then",
        "test_a_folder_below_a_held_one_waits",
    ),
    Fault(
        "a folder below is no obstacle",
        "lib/locks/folders",
        " and not folders.lies_below(lock, name) and not folders.lies_below(name, lock) then",
        " and not folders.lies_below(name, lock) then",
        "test_a_folder_above_a_held_one_waits",
    ),
    Fault(
        "a released folder does not call the steps that wait above and below it",
        "lib/locks/calls",
        "  if not folders.is_folder(name) then return call_line(tx, name) end\n",
        "  do return call_line(tx, name) end\n",
        "test_a_folder_below_a_held_one_waits",
    ),
    Fault(
        "a name that begins like a folder lies in it",
        "lib/locks/folders",
        "return name:sub(-1) == '/' and name or name .. '/'",
        "return name",
        "test_names_that_only_begin_alike_do_not_overlap",
    ),
    Fault(
        "a later step overtakes an earlier one that waits for a wider folder",
        "lib/locks/precedence",
        " and not precedence.is_kept_back(tx, lock.name, who, priority)",
        "",
        "test_a_waiter_for_a_wide_folder_is_not_overtaken_by_later_ones_below",
    ),
    Fault(
        "a child is kept back by a step that waits for its parent",
        "lib/locks/precedence",
        " and not folders.holds_around(tx, who)",
        "",
        "test_the_child_of_a_holder_is_not_kept_back_by_a_step_that_waits_for_the_parent",
    ),
    Fault(
        "a step that waits for a limit keeps others from its folder",
        "lib/locks/precedence",
        "if not folders.is_folder(name) and (",
        "if false and (",
        "test_a_step_that_waits_for_a_limit_too_keeps_no_other_back",
    ),
    Fault(
        "a tree waits in line for a folder inside one that it holds",
        "lib/locks/folders",
        "covered = covered or not folders.lies_below(lock, name)",
        "covered = covered or lock == name",
        "test_a_tree_that_holds_a_folder_is_not_kept_from_one_inside_it",
    ),
    Fault(
        "the audit compares folders by their whole names",
        "lib/audit/lock_lists",
        "  if folders.is_folder(lock) then check_above(tx, line, lock, one) end\n",
        "",
        "test_the_audit_finds_two_in_overlapping_folders",
    ),
    Fault(
        "who was called and came too late is not called again",
        "lib/locks/locks",
        "  tickets.forget_calls(tx, address, step.waits)\n",
        "",
        "test_a_folder_is_one_tree_s_whatever_happens",
    ),
    Fault(
        "the audit takes what a tree shares for two owners",
        "lib/audit/lock_lists",
        "if other < line and not shared and holders.lives(two) then",
        "if other < line and holders.lives(two) then",
        "test_whoever_waits_is_told_of_all_who_share_the_folder",
    ),
    Fault(
        "the audit frees the folder of a turn that is yet to end",
        "lib/audit/holders",
        "turn_state(one, around.id) == 'closing'",
        "turn_state(one, around.id) == 'never'",
        "test_a_folder_is_one_tree_s_whatever_happens",
    ),
)
