"""Faults in child sessions."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "what a child uses brings its deleted parent back",
        "lib/usage",
        "    if not values[3] then return end",
        "",
        "test_what_a_child_uses_brings_nothing_of_a_deleted_parent_back",
    ),
    Fault(
        "a child that a user goes on with ends with its parent's end of before",
        "lib/effects",
        "    redis.call('ZREM', tx.shared.errands, 'abort|' .. tx.args.member)\n",
        "",
        "test_a_child_that_a_user_resumed_stays_at_work",
    ),
    Fault(
        "an attempt that is superseded starts a child",
        "lib/parents",
        "return works and step.fence == parent.fence\n",
        "return works\n",
        "test_superseded_attempt_starts_no_child",
    ),
    Fault(
        "a tree is one level too deep",
        "lib/parents",
        "depth_of(parent.base) + 1 > most.depth",
        "depth_of(parent.base) > most.depth",
        "test_tree_is_no_deeper_than_its_limit",
    ),
    Fault(
        "a session has one child too many",
        "lib/parents",
        "'children') >= most.children",
        "'children') > most.children",
        "test_session_has_no_more_children_than_its_limit",
    ),
    Fault(
        "a tree has one session too many",
        "lib/parents",
        "below + 1 >= most.sessions",
        "below >= most.sessions",
        "test_tree_has_no_more_sessions_than_its_limit",
    ),
    Fault(
        "an attempt that is superseded takes a child over",
        "lib/parents",
        "  if not parents.is_running(parent) then return false end\n",
        "",
        "test_superseded_attempt_takes_no_child_over",
    ),
    Fault(
        "a child that is taken over keeps its old attempt",
        "lib/parents",
        "    redis.call('HSET', key, 'parent', tx.args.fields.parent)\n",
        "",
        "test_exit_of_a_child_reaches_the_attempt_that_took_it_over",
    ),
    Fault(
        "children of a lost attempt go on",
        "lib/steps/retries",
        "  children.abort_of_attempt(tx, address)\n  step.lease",
        "  step.lease",
        "test_lost_attempt_loses_its_children_but_those_that_are_let_go_on",
    ),
    Fault(
        "a lost attempt aborts what is to be let go on",
        "lib/children",
        "if policy_of(tx, child) == 'abort' then abort(tx, child) end",
        "abort(tx, child)",
        "test_lost_attempt_loses_its_children_but_those_that_are_let_go_on",
    ),
    Fault(
        "the end of a parent aborts what is to be let go on",
        "lib/detachment",
        "if goes_on and parent ~= '' and children.outlives(tx, child) then",
        "if false then",
        "test_child_is_detached_at_the_end_of_its_parent",
    ),
    Fault(
        "a detached child stays in the list of children",
        "lib/detachment",
        "  redis.call('SREM', tx.keys.children, child)\n",
        "",
        "test_child_is_detached_at_the_end_of_its_parent",
    ),
    Fault(
        "a detached child takes no budget along",
        "lib/detachment",
        "  move_budget(tx, key)\n",
        "",
        "test_child_takes_the_rest_of_the_budget_that_it_asked_for_along",
    ),
    Fault(
        "what is queued for a child reaches it once it is detached",
        "lib/detachment",
        "    redis.call('ZREM', tx.shared.errands, verb .. whom)\n",
        "",
        "test_stop_that_is_queued_for_a_child_does_not_reach_it_once_it_is_detached",
    ),
)
