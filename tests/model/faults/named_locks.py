"""Faults in named locks: one that is had twice, that is not freed, or whose line is not kept."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_WALK = "test_named_locks_are_as_the_model_says_after_each_call"

FAULTS = (
    Fault(
        "a lock is had twice",
        "tree/lock",
        "  if record.holder or before > 0 then\n",
        "  if before > 0 then\n",
        found_by=_WALK,
    ),
    Fault(
        "a late waiter is before the others",
        "tree/lock",
        "  if record.holder or before > 0 then\n",
        "  if record.holder then\n",
        found_by=_WALK,
    ),
    Fault(
        "a lock is not freed with its attempt",
        "lib/locks/locks",
        "  if named.is_named(name) then return named.forget(tx, name) end\n",
        "  if named.is_named(name) then return end\n",
        found_by=_WALK,
    ),
    Fault(
        "a lock is held after its time",
        "lib/locks/named",
        "    if holder['until'] <= tx.now then named.free(tx, lock, record) end\n",
        "",
        found_by=_WALK,
    ),
    Fault(
        "a lock whose time is over keeps its hold",
        "lib/locks/named",
        "  redis.call('ZREM', tx.shared.holds, held)\n",
        "",
        found_by=_WALK,
    ),
    Fault(
        "a grant that is over is renewed",
        "tree/lock",
        "  elseif args.fence or named.is_same(record.last, who, args.nonce) then\n",
        "  elseif named.is_same(record.last, who, args.nonce) then\n",
        found_by=_WALK,
    ),
    Fault(
        "an older grant is renewed",
        "tree/lock",
        " and (not args.fence or args.fence == record.holder.fence) then",
        " then",
        found_by="test_only_the_newest_grant_of_a_holder_is_renewed",
    ),
    Fault(
        "two grants have one number",
        "lib/locks/named",
        "    fence = redis.call('HINCRBY', tx.shared.epoch, 'fences', 1)}\n",
        "    fence = tonumber(redis.call('HGET', tx.shared.epoch, 'fences') or 1)}\n",
        found_by=_WALK,
    ),
    Fault(
        "a lost attempt takes a lock",
        "tree/lock",
        "  return not runs and 'superseded' or nil\n",
        "  return nil\n",
        found_by=_WALK,
    ),
    Fault(
        "a late call takes a lock that its holder has released",
        "tree/lock",
        "  elseif args.fence or named.is_same(record.last, who, args.nonce) then\n",
        "  elseif args.fence then\n",
        found_by=_WALK,
    ),
    Fault(
        "a waiter that has gone keeps its place",
        "lib/locks/named",
        "    if tx.now - waiter.seen <= named.LAPSE_MS and may_wait(tx, waiter) then",
        "    if may_wait(tx, waiter) then",
        found_by=_WALK,
    ),
    Fault(
        "an attempt that has ended keeps its place",
        "lib/locks/named",
        "    if tx.now - waiter.seen <= named.LAPSE_MS and may_wait(tx, waiter) then",
        "    if tx.now - waiter.seen <= named.LAPSE_MS then",
        found_by="test_waiter_of_an_attempt_that_has_ended_keeps_no_other_back",
    ),
    Fault(
        "another holder releases the lock",
        "lib/locks/named",
        "  return one ~= nil and one.who == who and one.nonce == nonce\n",
        "  return one ~= nil and one.who == who\n",
        found_by=_WALK,
    ),
    Fault(
        "no sweep looks at a lock",
        "lib/locks/named",
        "  redis.call('ZADD', tx.shared.errands, due, named.errand_of(lock))\n",
        "",
        found_by=_WALK,
    ),
)
