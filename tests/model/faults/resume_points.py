"""Faults in a resume from an earlier point."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "what never began gets a new number",
        "lib/resume",
        "if node.name ~= '' and end_run(tx, node.name) then",
        "if node.name ~= '' and (end_run(tx, node.name) or true) then",
    ),
    Fault(
        "what runs anew leaves its old run open",
        "lib/resume",
        "    if turn and turn.state ~= 'closed' then resume.supersede(tx, id, turn) end\n",
        "",
    ),
    Fault(
        "what runs anew leaves its old steps ready",
        "lib/resume",
        "  cancellation.cancel_below(tx, turn)\n",
        "",
    ),
    Fault(
        "going back forgets what is done",
        "lib/resume",
        "      for _, need in ipairs(node.done) do full = joins.arrive(tx, join, "
        "need, needs) end\n",
        "",
    ),
    Fault(
        "going back loses the iteration",
        "lib/resume",
        "  local inside = id .. '[' .. level.iteration .. ']'\n",
        "  local inside = id .. '[1]'\n",
        seed=46,
    ),
    Fault(
        "a limit does not count on",
        "lib/resume",
        "  if #inside > 0 then close_if_over(tx, block) end\n",
        "",
        seed=46,
    ),
    Fault(
        "a rewound run remembers nothing",
        "lib/resume",
        "opened = level.iteration, kept = level.kept}",
        "opened = level.iteration, kept = {}}",
        "test_what_comes_after_a_point_runs_again_and_nothing_else",
    ),
    Fault(
        "a rewound run forgets the iterations before it",
        "lib/attempts",
        "      found[id], id = turn.origin, turn.origin.run\n",
        "      id = turn.origin.run\n",
        "test_what_comes_after_a_point_runs_again_and_nothing_else",
    ),
    Fault(
        "a rewound decision is not known",
        "lib/conditions",
        "if origin and origin.opened == addresses.iteration_of(block) and origin.kept[name] then",
        "if false then",
        "test_what_was_decided_before_the_point_is_still_decided",
    ),
    Fault(
        "a list is lost on the way back",
        "lib/resume",
        "  redis.call('HSET', tx.keys.widths, to, width)\n",
        "",
        "test_a_list_that_was_made_before_the_point_is_worked_on_again",
    ),
    Fault(
        "what closes is forgotten by a stop",
        "lib/effects",
        "    if turn.state == 'closing' then turns.try_close(tx, id, turn) end\n",
        "",
        "test_a_turn_whose_child_stopped_with_the_session_closes_at_its_resume",
    ),
)
