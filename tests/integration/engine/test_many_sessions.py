"""Filtered lists among 20,000 sessions: their cost does not depend on the number of sessions."""

from __future__ import annotations

import pytest
from redis import Redis

from benchmarks import lists
from leadhand.contract.sessions import SessionsWanted

pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.timeout(1200)]

MANY = 20_000
#: What a page of one session takes, the session's own view included.
MOST_COMMANDS = 40


def test_a_label_among_many_sessions_costs_one_short_page(store_url: str) -> None:
    redis, engine = Redis.from_url(store_url, decode_responses=True), lists.make_engine(store_url)
    made = [lists.create(engine, number) for number in range(MANY)]

    def found() -> lists.Listed:
        return lists.list_all(engine, lists.WANTED)

    assert found() == lists.Listed(pages=1, examined=1, found=1)
    assert engine.queries.sessions(lists.WANTED).items[0].id == made[7]
    assert lists.measure(redis, found).commands <= MOST_COMMANDS
    nothing = SessionsWanted(label="L7", status=("failed",))
    assert lists.list_all(engine, nothing) == lists.Listed(pages=1, examined=0, found=0)
    redis.close()
