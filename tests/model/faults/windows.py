"""Faults in the window of hinted steps."""

from __future__ import annotations

from tests.model.faults.fault import Fault

FAULTS = (
    Fault(
        "slots of the window leak",
        "lib/hints",
        "== 1 then tx.freed[queue] = true end",
        "== 1 then end",
    ),
    Fault(
        "the window of one queue counts others",
        "lib/hints",
        "ZLEXCOUNT', tx.keys.hinted, addresses.range_of(queue .. '<'))",
        "ZLEXCOUNT', tx.keys.hinted, addresses.range_of(queue))",
    ),
    Fault("there is no window", "lib/hints", ">= tonumber(tx.session.window)", ">= 1000000"),
    Fault(
        "a retry is hinted before its time",
        "lib/hints",
        "  if hints.is_early(tx, step) then",
        "  if false then",
    ),
    Fault(
        "the settler is granted any step",
        "lib/dispatch",
        " and may_go_along(tx, address) then",
        " then",
    ),
    Fault(
        "the settler is granted any step that stands in line",
        "lib/dispatch",
        "if not address or address == tx.args.address or not may_go_along(tx, "
        "address) then return end",
        "if not address or address == tx.args.address then return end",
    ),
    Fault(
        "who came into the line twice is granted though it is hinted",
        "lib/hints",
        "    and not redis.call('ZSCORE', tx.keys.hinted, name .. '<' .. address)\n",
        "",
        found_by="test_a_settler_is_not_granted_what_stands_in_line_and_is_hinted",
    ),
    Fault(
        "a settler is granted its own step once more, from the line",
        "lib/dispatch",
        "if not address or address == tx.args.address or not may_go_along(tx, "
        "address) then return end",
        "if not address or not may_go_along(tx, address) then return end",
        found_by="test_a_settler_is_not_granted_its_own_step_again_from_the_line",
    ),
    Fault(
        "the settler is granted from the line what waits for its time",
        "lib/hints",
        "  return step.state == 'ready' and not hints.is_early(tx, step)\n",
        "  return true\n",
        found_by="test_a_settler_takes_nothing_from_the_line_that_waits_for_its_time",
    ),
)
