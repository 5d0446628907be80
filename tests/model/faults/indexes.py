"""Faults in the indexes by which sessions are listed."""

from __future__ import annotations

from tests.model.faults.fault import Fault

PLAIN = "test_lists_and_index_match_a_plain_list"

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
)  # fmt: skip
