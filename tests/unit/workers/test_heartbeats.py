"""Heartbeats of attempts that a worker holds, and of those that it has lost."""

from __future__ import annotations

import time

import pytest

from leadhand.models.documents import LoopDocument
from tests.http_world import LOOP
from tests.session_driving import claim, ref_of
from tests.silent_engine import silent_engine
from tests.waiting import wait_until
from workers.attempt.heartbeat import Heartbeats, Lease, Why


@pytest.mark.parametrize("why", ["lost", "fenced"])
def test_attempt_that_the_worker_has_lost_is_renewed_no_more(store_url: str, why: Why) -> None:
    """A renewal would keep the step from the worker that is to get it."""
    engine = silent_engine(store_url)
    heart = Heartbeats(engine)
    leases: list[Lease] = []
    for _ in "ab":
        session = engine.submit.document(LoopDocument.model_validate(LOOP)).session
        grant = claim(engine, session)
        leases.append(heart.keep(ref_of(engine, session), grant, sent=time.monotonic()))
    lost, held = leases
    lost.end(why)
    for lease in leases:
        heart.begin(lease)
        lease.good = lease.due = float("1e9")
    lost.due = 0.0
    for _ in range(2):  # a whole round is between the two
        held.due = 0.0
        wait_until(lambda: held.due > 0)
    heart.drop(held)
    assert lost.due == 0.0
    heart.drop(lost)
