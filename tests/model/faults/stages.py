"""Faults in the limits on stages that end without acceptance, and in no_progress."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a stage that ended without acceptance is no stop",
        "lib/turns",
        "  if opens_circuit(tx, id, turn, r) then return end\n",
        "",
    ),
    Fault(
        "a phase follows one that was tampered with",
        "lib/turns",
        "(reason or {}).code == 'tampered'",
        "false",
        "test_loop_that_was_tampered_with_ends_the_session",
    ),
    Fault(
        "a retry is taken while the circuit is open",
        "lib/budgets",
        "here >= (allowed.stage_stops or math.huge)",
        "here > (allowed.stage_stops or math.huge)",
        "test_retry_that_the_stages_limit_forbids_is_not_taken",
    ),
    Fault(
        "stops of all stages are not looked at",
        "lib/budgets",
        "  if all < (allowed.stops or math.huge) then return end\n",
        "  if true then return end\n",
        "test_stops_of_all_stages_count_together_also_of_those_passed_over",
    ),
    Fault(
        "a loop within a stage counts as one",
        "lib/turns",
        "  if addresses.block_of(id) ~= '' then return false end\n",
        "",
        "test_loops_within_a_stage_are_no_stages",
    ),
    Fault(
        "a stage at its limit is run again by a resume",
        "lib/budgets",
        "budgets.note(tx, name, most_stops(tx))",
        "budgets.note(tx, name, 0)",
        "test_retry_that_the_stages_limit_forbids_is_not_taken",
    ),
    Fault(
        "a loop that stands still goes on",
        "lib/turns",
        "  if still then return",
        "  if false then return",
        "test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told",
    ),
    Fault(
        "a loop that moved stands still",
        "lib/turn_records",
        "turn.signature == tx.args.signature and turn.same + 1 or 1",
        "(turn.same or 0) + 1",
        "test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told",
    ),
    Fault(
        "a loop ends one turn too early",
        "lib/turn_records",
        "turn.same > most",
        "turn.same >= most",
        "test_a_loop_in_which_nothing_moves_ends_one_turn_after_it_could_be_told",
    ),
    Fault(
        "an inner loop's judge speaks for the outer one",
        "lib/turn_records",
        "  if tx.args.ledger ~= id or tx.args.recheck then",
        "  if not tx.args.ledger or tx.args.recheck then",
        seed=38,
    ),
)
