"""Faults in the inbox: messages that get lost, or that are given or acknowledged wrongly."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_LIST = "test_inbox_is_as_a_plain_list_after_each_call"

FAULTS = (
    Fault(
        "each claim looks into the inbox",
        "lib/inbox",
        "  return tx.session.unread ~= '' and tx.session.unread ~= '0'\n",
        "  redis.call('ZCARD', tx.keys.unread)\n"
        "  return tx.session.unread ~= '' and tx.session.unread ~= '0'\n",
        found_by="test_a_session_without_messages_takes_no_more_commands_than_without_an_inbox",
    ),
    Fault(
        "a message is acknowledged before its turn has ended",
        "lib/attempts",
        "  inbox.give(tx, address)\n",
        "  inbox.give(tx, address)\n  inbox.settle(tx, address)\n",
        found_by=_LIST,
    ),
    Fault(
        "a failed attempt acknowledges its messages",
        "settle",
        "  work_diffs.keep(tx, address)\n",
        "  work_diffs.keep(tx, address)\n  inbox.settle(tx, address)\n",
        found_by=_LIST,
    ),
    Fault(
        "a settle acknowledges what came after its claim",
        "lib/inbox",
        "    if owner == address then mine[#mine + 1] = member end\n",
        "    mine[#mine + 1] = member\n",
        found_by=_LIST,
    ),
    Fault(
        "a settle acknowledges nothing",
        "settle",
        "    if args.word == 'succeeded' then inbox.settle(tx, address) end\n",
        "",
        found_by=_LIST,
    ),
    Fault(
        "a message is given to two turns",
        "lib/inbox",
        "  return owner == '' or not redis.call('ZSCORE', tx.keys.live, owner)\n",
        "  return true\n",
        found_by=_LIST,
    ),
    Fault(
        "the messages of a failed step are lost",
        "lib/inbox",
        "  return owner == '' or not redis.call('ZSCORE', tx.keys.live, owner)\n",
        "  return owner == ''\n",
        found_by=_LIST,
    ),
    Fault(
        "the next attempt does not get the messages of a lost one",
        "lib/inbox",
        "    if owner == address then given[",
        "    if owner == address and not records.load(tx, 'steps', address).lost then given[",
        found_by=_LIST,
    ),
    Fault(
        "a repeated message is stored twice",
        "inbox_add",
        "  if id then\n",
        "  if false then\n",
        found_by=_LIST,
    ),
    Fault(
        "a repeated take finds no message",
        "lib/inbox",
        "    if key and take.key == key then return take.ids end\n",
        "",
        found_by=_LIST,
    ),
    Fault(
        "an acknowledged message still counts as unread",
        "lib/inbox",
        "    count_unread(tx, -1, sign)\n",
        "",
        found_by=_LIST,
    ),
    Fault(
        "an ended session accepts hints",
        "lib/inbox",
        "  if FINAL[tx.session.status] and not AFTER_END[kind] then return nil, 'ended' end\n",
        "",
        found_by="test_ended_session_accepts_ends_only",
    ),
)
