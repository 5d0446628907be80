"""Faults in what sessions use, and in their budgets."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a cost told by a heartbeat counts again at the end",
        "lib/usage",
        "reported[name] - (step[field] or 0)",
        "reported[name] - (name == 'cost_micros' and 0 or step[field] or 0)",
    ),
    Fault(
        "tokens told by a heartbeat count again at the end",
        "lib/usage",
        "reported[name] - (step[field] or 0)",
        "reported[name] - (name == 'cost_micros' and step[field] or 0)",
    ),
    Fault(
        "a late heartbeat counts again",
        "lib/usage",
        "if goes_on then step[field] =",
        "if false then step[field] =",
    ),
    Fault(
        "tokens are counted at the end alone",
        "beat",
        "if usage.add_attempt(tx, address, step, args.spent, true) or tx.reached then\n",
        "if args.spent then args.spent.tokens_in, args.spent.tokens_out = 0, 0 end\n"
        "if usage.add_attempt(tx, address, step, args.spent, true) or tx.reached then\n",
    ),
    Fault(
        "what an attempt told is taken off the next one's",
        "lib/attempts",
        "  step.told, step.told_in, step.told_out = nil, nil, nil\n",
        "",
        seed=99,
    ),
    Fault(
        "a settle that comes again is counted again",
        "settle",
        "if step.settled == args.fence then\n",
        "if step.settled == args.fence then\n"
        "  usage.add_attempt(tx, address, step, args.usage)\n"
        "  transaction.flush(tx)\n",
    ),
    Fault(
        "what a released attempt used is forgotten",
        "release",
        "usage.add_attempt(tx, address, step, args.usage)\n",
        "",
    ),
    Fault(
        "what still ran when its loop ended is missing in the ledger",
        "lib/usage",
        "      if turn.entry then ledger.amend(tx, turn.entry, turn) end\n",
        "",
        seed=48,
    ),
    Fault(
        "an iteration is charged with the one before",
        "lib/ledger",
        "    turn.cost_micros, turn.tokens_in, turn.tokens_out = nil, nil, nil\n",
        "",
    ),
    Fault(
        "a budget may be passed",
        "lib/budgets",
        "used >= limit then tx.reached",
        "used > limit then tx.reached",
    ),
    Fault(
        "a stopping session ends for its budget",
        "lib/turns",
        "  if tx.reached and tx.session.status == 'active' then turns.end_spent(tx) end\n",
        "  if tx.reached then turns.end_spent(tx) end\n",
        "test_a_session_that_is_to_stop_stops_though_its_last_step_used_its_budget_up",
    ),
    Fault(
        "an iteration is begun that the budget does not have",
        "lib/turns",
        "  if iteration < turn.max and budgets.is_spent(tx, more) then return "
        "turns.end_spent(tx) end\n",
        "",
    ),
    Fault(
        "a loop is begun that the budget does not have",
        "lib/turns",
        "  if max > 0 and budgets.is_spent(tx, 0) then return turns.end_spent(tx) end\n",
        "",
    ),
    Fault("the clock runs while stopped", "lib/effects", "  budgets.stop_clock(tx)\n", ""),
    Fault("the clock runs after the end", "lib/sessions", "  budgets.stop_clock(tx)\n", ""),
    Fault("a resumed session has no clock", "lib/effects", "  budgets.resume(tx)\n", ""),
    Fault(
        "time before the stop is given back",
        "lib/budgets",
        "budgets.start_clock(tx, math.max(0, allowed.wall_ms - tx.session.waited))",
        "budgets.start_clock(tx, allowed.wall_ms)",
    ),
    Fault(
        "a passed budget is no hindrance to a resume",
        "lib/checks",
        "  local over = budgets.find_spent(tx, tx.args.budget or {})\n  if over then\n",
        "  local over = budgets.find_spent(tx, tx.args.budget or {})\n  if false then\n",
    ),
)
