"""Faults in claims: fences, nonces and repeated calls."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "settle takes any attempt's word",
        "settle",
        "if not step or step.fence ~= args.fence or step.nonce ~= args.nonce then",
        "if not step then",
        "test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it",
    ),
    Fault(
        "beat keeps a step for whoever asks",
        "beat",
        "step.state ~= 'running' or step.fence ~= args.fence or step.nonce ~= args.nonce then",
        "step.state ~= 'running' then",
        "test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it",
    ),
    Fault(
        "release hands back another's step",
        "release",
        "step.state ~= 'running' or step.fence ~= args.fence or step.nonce ~= args.nonce then",
        "step.state ~= 'running' then",
        "test_who_lost_a_step_can_neither_keep_it_nor_hand_it_back_nor_settle_it",
    ),
    Fault(
        "the fence does not grow",
        "lib/attempts",
        "step.fence, step.attempt = (step.fence or 0) + 1,",
        "step.fence, step.attempt = step.fence or 1,",
    ),
    Fault(
        "parking grants no new fence", "park", "step.fence + 1, nil, nil", "step.fence, nil, nil"
    ),
    Fault(
        "an answer needs no fence",
        "answer",
        " or step.fence ~= args.fence then",
        " then",
        "test_parking_twice_is_parking_once",
    ),
    Fault(
        "an exit needs no fence",
        "lib/checks",
        "step.state == 'running' and step.fence == tx.args.fence",
        "step.state == 'running'",
        "test_exit_by_a_step_that_is_not_held_is_refused",
    ),
    Fault("settle forgets that it settled", "settle", "step.settled = args.fence\n", "\n"),
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
    Fault(
        "a claim is not remembered", "claim", "if step.nonce == args.nonce then", "if false then"
    ),
    Fault(
        "a claim is given again after its lease",
        "claim",
        "if step.state ~= 'running' or step.lease <= tx.now then",
        "if step.state ~= 'running' then",
        "test_late_claim_of_a_lease_that_passed_is_superseded",
    ),
    Fault(
        "parking twice hands the step over",
        "park",
        "if step.state == 'parked' and step.fence == args.fence + 1 then",
        "if false then",
    ),
    Fault(
        "a control that is repeated is refused",
        "control",
        "  if checks.is_repeated(tx) then\n",
        "  if false then\n",
    ),
    Fault(
        "create knows no nonce",
        "create",
        "made_by and made_by == args.fields.nonce",
        "false",
        "test_create_whose_reply_was_lost_finds_its_own_session",
    ),
    Fault(
        "create takes any body for a key",
        "create",
        "body ~= args.body and 'conflict'",
        "false",
        "test_key_of_another_body_is_refused",
    ),
    Fault(
        "a running step is claimed",
        "claim",
        "if step.state ~= 'ready' then",
        "if false then",
    ),
    Fault(
        "a stopped session's step is claimed",
        "claim",
        "if session.status ~= 'active' and not last.may_run(tx, step) then",
        "if false then",
    ),
    Fault(
        "a retry is claimed too early", "claim", "if hints.is_early(tx, step) then", "if false then"
    ),
    Fault(
        "any worker gets a local step",
        "claim",
        " or (r.queue == 'local') ~= (args.is_local or false) and 'queue'",
        "",
        "test_a_worker_of_the_fleet_gets_no_local_step",
    ),
    Fault(
        "a message is sent for a local step",
        "lib/hints",
        "  if r.queue == 'local' then return hints.look_again(tx, address) end\n",
        "",
        "test_local_steps_are_never_hinted_to_workers",
    ),
    Fault(
        "the sweep looks at a local step once",
        "notify",
        "    hints.look_again(tx, address)\n",
        "    redis.call('ZREM', tx.shared.ready, addresses.member(tx, address))\n",
        "test_session_without_a_worker_is_stopped_as_lost_and_can_be_resumed",
    ),
    Fault(
        "a local step is in the queue of a place",
        "lib/hints",
        "  if r.queue == 'local' then return 'local@' .. tx.args.session end\n",
        "",
        "test_results_flow_to_the_next_local_step",
    ),
    Fault(
        "the second outcome of an attempt at a local step counts",
        "settle",
        "  if step.settled == args.fence then\n",
        "  if false then\n",
        "test_an_outcome_is_recorded_once",
    ),
)
