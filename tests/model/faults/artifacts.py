"""Faults of the references to artifacts."""

from __future__ import annotations

from tests.model.faults.fault import Fault

_FILE = "lib/artifacts"
FAULTS = (
    Fault(
        "an outcome does not count as a reference to its artifact",
        _FILE,
        "redis.call('ZADD', tx.shared.artifacts, 0, one.digest",
        "local _ = (one.digest",
        found_by="test_sweep_keeps_what_a_session_refers_to",
    ),
    Fault(
        "all sessions share one reference to an artifact",
        _FILE,
        "one.digest .. '|' .. tx.args.member:sub(1, -2))",
        "one.digest .. '|aaaaaaaa|aaaaaaaa')",
        found_by="test_sweep_keeps_what_a_session_refers_to",
    ),
    Fault(
        "the artifacts of an outcome are not recorded with it",
        "lib/outcomes",
        "  artifacts.refer(tx, address)\n",
        "",
        found_by="test_artifact_is_read_only_through_a_session_that_refers_to_it",
    ),
)
