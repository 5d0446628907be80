"""Faults in events and counters."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "the end of a step is not told",
        "lib/outcomes",
        "  events.emit(tx, 'step.settled', address,",
        "  local _ = (function() end)('step.settled', address,",
    ),
    Fault(
        "a cancellation is told twice",
        "lib/cancellation",
        "  events.emit(tx, 'step.cancelled', address)\n",
        "  events.emit(tx, 'step.cancelled', address) events.emit(tx, 'step.cancelled', address)\n",
    ),
    Fault(
        "an iteration is not written",
        "lib/ledger",
        "redis.call('RPUSH', tx.keys.ledger, text .. usage_fields(turn))",
        "redis.call('LLEN', tx.keys.ledger) + 1",
    ),
    Fault(
        "an iteration that ends early is not written",
        "lib/turns",
        "  if id ~= '' and not turn.each then ledger.append(tx, ",
        "  if false then ledger.append(tx, ",
    ),
    Fault(
        "a step is not counted",
        "lib/outcomes",
        "  budgets.note(tx, 'steps', records.count(tx, 'steps'))\n",
        "",
    ),
)
