"""Reading a session costs what is shown of it, whatever has happened in it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from redis import Redis

from app.core.addresses import SessionRef
from app.engine import Engine
from app.sessions.submit import About
from app.settings import Settings
from app.store.store import Store, connect
from benchmarks.cost import Queue, Spent, carry_out, iterations, read_counters

pytestmark = pytest.mark.no_cover


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def engine(store_url: str, queue: Queue) -> Engine:
    return Engine(Store(connect(store_url)), queue, Settings(redis_url=store_url, secret="s"))


def loop_of(engine: Engine, queue: Queue, *, most: int, done: int) -> str:
    """A session with a loop that is at work after so many iterations."""
    program = iterations(most)
    session = engine.submit.program(program, About(kind="loop", name="read")).session
    ref = SessionRef(session, session)
    while queue.hints and int(engine.store.fields(ref).get("iterations", 0)) < done:
        carry_out(engine, ref, queue)
    return session


def spent_on(store_url: str, read: Callable[[], object]) -> Spent:
    read()  # connections, programs and facts are read once
    with Redis.from_url(store_url, decode_responses=True) as redis:
        before = read_counters(redis)
        read()
        after = read_counters(redis)
    return Spent(after.commands - before.commands, after.bytes - before.bytes)


def test_a_session_costs_the_same_after_10_and_after_many_iterations(
    store_url: str, engine: Engine, queue: Queue
) -> None:
    short = loop_of(engine, queue, most=1000, done=10)
    queue.hints.clear()
    long = loop_of(engine, queue, most=1000, done=100)
    few = spent_on(store_url, lambda: engine.queries.session(short))
    many = spent_on(store_url, lambda: engine.queries.session(long))
    assert many.commands == few.commands
    assert many.bytes <= few.bytes * 1.1


def test_the_commands_for_one_session_are_few(store_url: str, engine: Engine, queue: Queue) -> None:
    session = loop_of(engine, queue, most=1000, done=2)
    assert spent_on(store_url, lambda: engine.queries.session(session)).commands <= 16


def test_a_session_is_read_in_few_round_trips(store_url: str, engine: Engine, queue: Queue) -> None:
    session = loop_of(engine, queue, most=1000, done=2)
    engine.queries.session(session)  # connections, programs and facts are read once
    with Redis.from_url(store_url, decode_responses=True) as redis:
        before = redis.info("stats")["total_reads_processed"]
        engine.queries.session(session)
        after = redis.info("stats")["total_reads_processed"]
    assert after - before - 1 <= 3  # one is that of the counter


def test_a_list_takes_the_same_round_trips_for_few_and_for_many_sessions(
    store_url: str, engine: Engine, queue: Queue
) -> None:
    for _ in range(20):
        loop_of(engine, queue, most=3, done=1)
        queue.hints.clear()
    engine.queries.sessions(limit=20)  # connections and programs are read once
    spent = {2: 99, 20: 99}
    with Redis.from_url(store_url, decode_responses=True) as redis:
        for limit in (2, 20, 2, 20, 2, 20):  # a busy server may read one request in two parts
            before = redis.info("stats")["total_reads_processed"]
            engine.queries.sessions(limit=limit)
            reads = redis.info("stats")["total_reads_processed"] - before - 1
            spent[limit] = min(spent[limit], reads)
    assert spent[2] == spent[20]
    assert spent[2] <= 6


def test_a_list_costs_the_same_for_each_session(
    store_url: str, engine: Engine, queue: Queue
) -> None:
    for _ in range(20):
        loop_of(engine, queue, most=3, done=1)
        queue.hints.clear()
    few = spent_on(store_url, lambda: engine.queries.sessions(limit=5))
    many = spent_on(store_url, lambda: engine.queries.sessions(limit=20))
    each = (many.commands - few.commands) / 15
    assert each <= 11
