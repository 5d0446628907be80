"""A session that needed no person for a while is listed again when it does."""

from __future__ import annotations

import pytest

from app.engine import Engine
from app.store.changes import Called, ChangeReads
from tests.engine.test_attention import ask, needs
from tests.session_driving import end
from tests.silent_engine import loop, silent_engine


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret="s")


def test_open_question_is_listed_again_after_a_stop_that_somebody_read(engine):
    session = ask(engine)
    engine.control.apply(session, "stop")
    assert needs(engine) == {}
    engine.control.apply(session, "resume")
    assert needs(engine) == {session: ["question"]}


def test_session_that_is_called_again_is_not_removed_for_an_older_call(engine):
    reads = engine.store.part(ChangeReads)
    redis = engine.store._redis
    redis.zadd("lh:attention", {"again": 5, "over": 3})
    reads.remove([Called(4, "again"), Called(3, "over"), Called(2, "gone")])
    assert redis.zrange("lh:attention", 0, -1, withscores=True) == [("again", 5.0)]
    reads.remove([Called(4, "again")])
    assert redis.zcard("lh:attention") == 1


def test_archived_failure_needs_nobody_until_it_is_restored(engine):
    session = engine.submit.document(loop()).session
    end(engine, session, "failed")
    engine.annotations.annotate(session, archived=True)
    assert needs(engine) == {}
    engine.annotations.annotate(session, archived=False)
    assert needs(engine) == {session: ["failed"]}


def test_resumed_orphan_that_fails_needs_a_person(engine):
    session = engine.submit.document(loop()).session
    end(engine, session, "failed")
    redis = engine.store._redis
    [key] = redis.keys(f"*:{session}:session")
    redis.hset(key, "parent", '{"session": "0000aaaa", "base": "lh:{0000aaaa}:0000aaaa:"}')
    assert needs(engine) == {}
    redis.hset(key, "alone", "1")
    redis.zadd("lh:attention", {session: 1})
    assert needs(engine) == {session: ["failed"]}
