"""Faults in the indexes by which sessions are listed."""

from __future__ import annotations

from tests.model.faults.fault import Fault

PLAIN = "test_lists_and_index_match_a_plain_list"
ROLLING = "test_lists_match_a_plain_list_while_an_older_version_creates_and_deletes"
BATCHES = "test_sessions_of_an_older_version_are_indexed_in_batches"

FAULTS = (
    Fault("a new session is in no index of facts", "lib/sessions",
          "  facts.add_new(tx)\n", "", PLAIN),
    Fault("a deleted session stays in the index of facts", "lib/sessions",
          "  facts.remove(tx)\n", "", PLAIN),
    Fault("a label is not indexed", "lib/facts",
          "{'kind', 'label', 'name'}", "{'kind', 'name'}", PLAIN),
    Fault("a status that changes is not indexed", "lib/sessions",
          "  redis.call('ZADD', tx.prefix .. 'status:' .. status, created, tx.args.session)\n", "",
          PLAIN),
    Fault("a deleted session stays in the index of its status", "lib/sessions",
          "  redis.call('ZREM', tx.prefix .. 'status:' .. tx.session.status, tx.args.session)\n"
          "  facts", "  facts", PLAIN),
    Fault("the mark passes sessions that an older version created", "index_sessions",
          "    if not listed[session] then add(tx, session) end\n", "", ROLLING),
    Fault("a batch leaves the rest of its last ms behind the mark", "index_sessions",
          "  return redis.call('ZRANGEBYSCORE', key, after, last), tonumber(last), true\n",
          "  return sessions, tonumber(last), true\n", BATCHES),
    Fault("the mark passes the ms that is not over", "index_sessions",
          "tx.now - 1", "tx.now",
          "test_a_session_that_an_older_version_creates_in_the_ms_of_a_sweep_is_indexed"),
    Fault("the mark stays in the future when the clock steps back", "lib/sweep/clock_step",
          "  if facts.mark(tx) > tx.now then facts.set_mark(tx, tx.now - 1) end\n", "",
          "test_a_session_created_after_the_clock_stepped_back_is_indexed"),
)  # fmt: skip
