"""Faults in decisions, skipped nodes and breaks."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "a condition is not looked at",
        "lib/turns",
        "  if r.given and not conditions.is_met(tx, block, r.given) then",
        "  if false then",
    ),
    Fault(
        "a condition takes any verdict",
        "lib/conditions",
        " and step.verdict == given.verdict\n",
        " and step.verdict\n",
        seed=81,
    ),
    Fault(
        "who failed still decides",
        "lib/conditions",
        "  return step and step.state == 'succeeded' and",
        "  return step and",
        seed=67,
    ),
    Fault(
        "an older answer decides",
        "lib/conditions",
        "addresses.step_address(home, given.node, run)",
        "addresses.step_address(home, given.node, 1)",
        "test_what_failed_is_decided_by_the_newest_answer",
    ),
    Fault(
        "a skipped step never arrives",
        "lib/conditions",
        "conditions.skip_step(tx, address, reason, r.size)\n  return true\n",
        "conditions.skip_step(tx, address, reason, r.size)\n",
    ),
    Fault(
        "a skipped loop never arrives",
        "lib/conditions",
        "{verdict = 'skipped', iterations = 0, reason = reason})\n  return true\n",
        "{verdict = 'skipped', iterations = 0, reason = reason})\n",
    ),
    Fault(
        "a skipped step is not told",
        "lib/conditions",
        "  events.emit(tx, 'step.settled', address, {word = 'skipped', reason = "
        "reason, fence = 0})\n",
        "",
    ),
    Fault(
        "a condition is lost on the way",
        "core/routing.py",
        'route["given"] = node.given.model_dump()',
        "pass",
    ),
    Fault(
        "continue ends the loop",
        "lib/outcomes",
        "if r.ends == 'iteration' and verdict == 'accept' then",
        "if false then",
        seed=35,
    ),
    Fault(
        "continue changes nothing",
        "lib/outcomes",
        "    return turns.finish_iteration(tx, addresses.turn_of(block), "
        "addresses.iteration_of(block),\n"
        "      {code = 'condition', at = address, text = 'the rest of the iteration "
        "was passed over'})\n",
        "    return turns.arrive(tx, block, addresses.name_of(tx, address))\n",
        seed=41,
    ),
    Fault(
        "continue turns twice",
        "lib/outcomes",
        "at = address, text = 'the rest of the iteration was passed over'})\n",
        "at = address,\n"
        "      text = '', turns.finish_iteration(tx, addresses.turn_of(block), "
        "addresses.iteration_of(block))})\n",
        seed=35,
    ),
    Fault(
        "what does not continue continues",
        "lib/outcomes",
        "if r.ends == 'iteration' and verdict == 'accept' then",
        "if r.ends == 'iteration' then",
        seed=134,
    ),
)
