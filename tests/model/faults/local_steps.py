"""Faults in the steps that a session's submitter carries out itself."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
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
