"""Which sessions need a person, and the stream of their changes."""

from __future__ import annotations

import pytest

from app.engine import Engine
from app.store.changes import Called, ChangeReads
from app.sweep import sweep
from leadhand.models.documents import Budget
from tests.engine.world import World
from tests.flows import flow
from tests.session_driving import claim, end, ref_of, run_iteration, settle
from tests.silent_engine import loop, silent_engine
from workers.attempt.settle import park


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret="s")


def needs(engine: Engine) -> dict[str, list[str]]:
    return {
        one.session.id: [need.kind for need in one.needs] for one in engine.attention.page().items
    }


def ask(engine: Engine) -> str:
    step = {"type": "human", "label": "ask", "question": "Which colour?"}
    session = str(engine.submit.document(flow(step)).session)
    work = engine.attempts.work(ref_of(engine, session), claim(engine, session))
    assert park(engine, work) is None
    return session


def test_question_needs_a_person_until_it_is_answered(engine):
    session = ask(engine)
    [found] = engine.attention.page().items
    assert [need.text for need in found.needs] == ["Which colour?"]
    assert [one.question for one in found.questions] == ["Which colour?"]
    engine.answers.give(session, "green", by="ann")
    assert needs(engine) == {}
    assert engine.store._redis.zcard("lh:attention") == 0


def test_failed_session_needs_a_person_until_it_is_resumed_or_deleted(engine):
    first, second = (engine.submit.document(loop()).session for _ in range(2))
    end(engine, first, "failed")
    end(engine, second, "failed")
    assert needs(engine) == {second: ["failed"], first: ["failed"]}
    engine.control.apply(first, "resume")
    engine.deletion.delete(second, force=False, seen=None)
    assert needs(engine) == {}


def test_ended_and_stopped_sessions_need_nobody(engine):
    for status in ("completed", "stopped", "aborted"):
        end(engine, engine.submit.document(loop()).session, status)
    stopped = ask(engine)
    engine.control.apply(stopped, "stop")
    assert needs(engine) == {}
    engine.control.apply(stopped, "resume")


def test_limit_needs_a_person_from_80_percent_on(engine):
    session = engine.submit.document(loop(budget=Budget(steps=8))).session
    for _ in range(2):  # of three steps
        run_iteration(engine, session, "retry")
        assert needs(engine) == {}
    settle(engine, session, claim(engine, session))
    assert needs(engine) == {session: ["budget"]}


def test_limit_calls_for_a_person_once(bench):
    engine = World.of(bench).engine
    session = engine.submit.document(loop(budget=Budget(steps=10), max_iterations=9)).session
    for _ in range(3):
        run_iteration(engine, session, "retry")
    assert needs(engine) == {session: ["budget"]}
    changes = bench.redis.xrange("lh:changes")
    assert [fields["w"] for _, fields in changes].count("attention") == 1


def test_time_limit_needs_a_person_from_80_percent_on_without_any_work(store_url):
    world = World(store_url)
    session = str(world.engine.submit.document(loop(budget=Budget(wall_s=1000))).session)
    world.later(799_000)
    assert needs(world.engine) == {}
    world.later(2_000)
    assert needs(world.engine) == {session: ["budget"]}
    world.later(198_000)
    assert needs(world.engine) == {session: ["budget"]}
    world.later(2_000)
    assert needs(world.engine) == {session: ["failed"]}


def test_session_that_resumes_with_little_time_left_needs_a_person(store_url):
    world = World(store_url)
    session = str(world.engine.submit.document(loop(budget=Budget(wall_s=1000))).session)
    world.later(900_000)
    world.engine.control.apply(session, "stop")
    assert needs(world.engine) == {}
    world.engine.control.apply(session, "resume")
    assert needs(world.engine) == {session: ["budget"]}
    world.later(99_000)
    assert world.engine.queries.session(session).status == "active"
    world.later(2_000)
    assert world.engine.queries.session(session).status == "failed"


def test_step_that_no_worker_takes_is_stuck(store_url):
    now = [1_000_000_000_000]
    engine = silent_engine(store_url, clock=lambda: now[0], secret="s")
    session = engine.submit.document(loop()).session
    for _ in range(3):
        now[0] += 48_000
        sweep(engine)
    assert needs(engine) == {}
    for _ in range(2):
        now[0] += 48_000
        sweep(engine)
    assert needs(engine) == {session: ["stuck"]}


def test_pages_are_by_the_newest_call_and_complete(engine):
    sessions = [ask(engine) for _ in range(5)]
    found, cursor = [], None
    while True:
        page = engine.attention.page(limit=2, cursor=cursor)
        found += [one.session.id for one in page.items]
        cursor = page.next
        if cursor is None:
            break
    assert sorted(found) == sorted(sessions)
    assert engine.attention.count() == 5


def test_number_is_counted_once_for_all_who_ask_until_a_session_changes(store_url):
    world = World(store_url)
    engine, redis = world.engine, world.engine.store._redis
    sessions = [ask(engine) for _ in range(3)]
    assert engine.attention.count() == 3
    redis.config_resetstat()
    assert [engine.attention.count() for _ in range(5)] == [3] * 5
    calls = redis.info("commandstats")
    assert "cmdstat_hgetall" not in calls
    assert calls["cmdstat_xrevrange"]["calls"] == 5
    engine.answers.give(sessions[0], "green", by="ann")
    assert engine.attention.count() == 2
    redis.zrem("lh:attention", sessions[1])  # no change of a session says so
    assert engine.attention.count() == 2
    world.now += 2_000
    assert engine.attention.count() == 1


def test_stream_has_a_new_title_and_what_is_put_away(engine):
    session = str(engine.submit.document(loop()).session)
    engine.annotations.annotate(session, title="nightly")
    end(engine, session, "completed")
    engine.annotations.annotate(session, archived=True)
    engine.annotations.annotate(session, archived=True)  # changes nothing
    changes = engine.store.part(ChangeReads).after("0-0")
    assert [one.what for one in changes].count("annotated") == 2


def test_stream_has_each_change_of_a_status_and_each_question(engine):
    session = ask(engine)
    engine.answers.give(session, "green", by="ann")
    changes = engine.store.part(ChangeReads).after("0-0")
    assert [one.what for one in changes if one.session == session][:3] == [
        "active", "attention", "answered",
    ]  # fmt: skip
    engine.deletion.delete(session, force=False, seen=None)
    assert engine.store.part(ChangeReads).after(changes[-1].id)[-1].what == "deleted"


def test_stream_is_bounded(engine):
    redis = engine.store._redis
    with redis.pipeline(transaction=False) as pipe:
        for n in range(6000):
            pipe.xadd("lh:changes", {"s": f"{n:08x}", "w": "active"})
        pipe.execute()
    engine.submit.document(loop())
    assert redis.xlen("lh:changes") < 5300


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


@pytest.mark.parametrize("others", [49, 50, 1500])
def test_question_behind_many_steps_that_wait_for_something_else_is_found(engine, others):
    session = ask(engine)
    ref, redis = ref_of(engine, session), engine.store._redis
    for part in ("parked", "live"):
        key = engine.store.keys.part(ref, part)
        redis.zadd(key, {f"a{number:04}": 0 for number in range(others)})
    assert needs(engine) == {session: ["question"]}
    assert engine.attention.count() == 1


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
