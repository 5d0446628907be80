"""The fan-out of events: every client gets each event once, in order, whenever it joins."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from api.events import EventStream
from api.fanout import Fanout, StreamCut, Subscription
from app.engine import Engine
from leadhand.models.views.step import Event
from tests.session_driving import add_event, add_events, end, ref_of
from tests.silent_engine import loop, silent_engine
from tests.waiting import wait_until
from tests.wire import Wire

#: An id after those of all events.
NEVER = "9999999999999-0"


@pytest.fixture
def engine(store_url) -> Engine:
    return silent_engine(store_url, secret="s")


@pytest.fixture
def session(engine) -> str:
    return str(engine.submit.document(loop()).session)


@pytest.fixture
def fanout(engine) -> Iterator[Fanout]:
    fanout = Fanout(engine.queries.events_many)
    yield fanout
    fanout.close()


def last_id(engine: Engine, session: str) -> str:
    return str(engine.queries.events(session)[-1].id)


def later(event_id: str, n: int) -> str:
    """The id of the nth millisecond after that of an event."""
    return f"{int(event_id.partition('-')[0]) + n}-0"


def event(n: int) -> Event:
    return Event(id=f"{n}-0", type="t", at_ms=n)


def taken(subscription: Subscription, until: str) -> list[str]:
    """The ids that come, up to the one named."""
    ids: list[str] = []
    while not ids or ids[-1] != until:
        came = subscription.take(5.0)
        assert came is not None, ids
        ids.append(came.id)
    return ids


def test_clients_that_join_at_different_places_each_get_what_they_miss(engine, session, fanout):
    ids = add_events(engine, session, 10)
    with (
        fanout.watch(session, after=ids[7]) as late,
        fanout.watch(session, after=ids[2]) as early,
        fanout.watch(session, after=NEVER) as ahead,
    ):
        ids += add_events(engine, session, 5)
        assert taken(early, ids[-1]) == ids[3:]
        assert taken(late, ids[-1]) == ids[8:]
        assert ahead.take(0.01) is None


def test_clients_that_join_while_events_come_miss_none(engine, session, fanout):
    done = threading.Event()
    first = later(last_id(engine, session), 1)
    ids = [later(first, n) for n in range(900)]

    def write() -> None:
        for event_id in ids:
            add_event(engine, session, event_id=event_id)
        done.set()

    writer = threading.Thread(target=write)
    seen: list[list[str]] = []

    def follow(after: str) -> None:
        with fanout.watch(session, after=after) as mine:
            seen.append([after, *taken(mine, ids[-1])])

    writer.start()
    followers = [threading.Thread(target=follow, args=(ids[n * 100],)) for n in range(8)]
    for follower in followers:
        follower.start()
    for thread in (writer, *followers):
        thread.join(timeout=20)
    assert done.is_set()
    starts = [ids.index(got[0]) for got in seen]
    assert sorted(starts) == [n * 100 for n in range(8)]
    # A client that fell behind by more than its queue is cut off, which none of these did.
    assert [got == ids[start:] for got, start in zip(seen, starts, strict=True)] == [True] * 8


def test_a_client_that_joins_during_a_read_misses_nothing_before_it(engine, session):
    reading, go_on = threading.Event(), threading.Event()

    def read(after: Mapping[str, str], *, block_ms: int) -> Mapping[str, list[Event]]:
        """Hold a read back, so that a client can join while it is under way."""
        found: Mapping[str, list[Event]] = engine.queries.events_many(after, block_ms=block_ms)
        if found and not go_on.is_set():
            reading.set()
            assert go_on.wait(10)
        return found

    ids = add_events(engine, session, 10)
    fanout = Fanout(read)
    with fanout.watch(session, after=ids[7]) as ahead:
        assert reading.wait(10)
        with fanout.watch(session, after=ids[2]) as behind:
            go_on.set()
            assert taken(behind, ids[-1]) == ids[3:]
        assert taken(ahead, ids[-1]) == ids[8:]
    fanout.close()


def test_what_came_just_before_the_end_is_told_before_it(engine, session, fanout):
    stream = EventStream(engine.queries, fanout, session, after="0-0").frames()
    last = last_id(engine, session)
    wait_until(lambda: f"id: {last}\n" in next(stream))
    # The session continues and ends before the stream looks whether it has.
    add_event(engine, session, "t")
    end(engine, session)
    rest = "".join(stream)
    assert rest.count("event: t\n") == rest.count("event: session.ended\n") == 1
    assert rest.index("event: session.ended") < rest.index("event: end")


def test_a_stream_that_breaks_off_says_why(engine, session, fanout):
    stream = EventStream(engine.queries, fanout, session, after="0-0").frames()
    assert next(stream) == "retry: 1000\n\n"
    last = add_event(engine, session, "t")
    while f"id: {last}" not in next(stream):
        pass
    fanout.close()
    assert list(stream) == ['event: cut\ndata: {"why": "closing"}\n\n']


def test_a_stream_whose_token_has_ended_says_so(engine, session, fanout, monkeypatch):
    monkeypatch.setattr("api.events.RECHECK_S", 0)
    stream = EventStream(engine.queries, fanout, session, after="0-0", admitted=lambda: False)
    frames = stream.frames()
    assert "session.created" in next(frames) + next(frames)
    last = last_id(engine, session)
    wait_until(lambda: f"id: {last}\n" in next(frames))
    add_event(engine, session, "t")
    assert list(frames) == ['event: cut\ndata: {"why": "token"}\n\n']


def test_a_session_that_is_deleted_meanwhile_ends_its_streams(engine, session, fanout):
    stream = EventStream(engine.queries, fanout, session, after="0-0").frames()
    next(stream)
    end(engine, session)
    engine.deletion.delete(session)
    assert list(stream) == ['event: end\ndata: {"status": "deleted"}\n\n']


def test_a_client_that_falls_behind_is_cut_off_and_the_others_are_not():
    slow, fast = Subscription("0-0", room=3), Subscription("0-0", room=30)
    for n in range(1, 6):
        slow.offer(event(n))
        fast.offer(event(n))
    with pytest.raises(StreamCut) as cut:
        slow.take(0)
    assert cut.value.why == "slow"
    assert taken(fast, "5-0") == [f"{n}-0" for n in range(1, 6)]


@given(offers=st.lists(st.integers(1, 50)), after=st.integers(0, 50))
def test_an_event_offered_again_is_taken_once(offers, after):
    mine = Subscription(f"{after}-0")
    for n in offers:
        mine.offer(event(n))
    came = []
    while (next_event := mine.take(0)) is not None:
        came.append(next_event.at_ms)
    assert came == sorted(set(came))
    assert all(n > after for n in came)
    assert max(came, default=0) == max((n for n in offers if n > after), default=0)


def test_a_store_that_is_away_for_a_while_costs_no_event(engine, session, store_url):
    with Wire(store_url) as wire:
        fanout = Fanout(silent_engine(wire.url).queries.events_many)
        with fanout.watch(session, after=last_id(engine, session)) as mine:
            first = add_event(engine, session)
            assert taken(mine, first) == [first]
            wire.cut()
            second = add_event(engine, session)
            assert mine.take(0.4) is None
            wire.heal()
            assert taken(mine, second) == [second]
        fanout.close()


def test_a_fault_of_the_reader_ends_its_streams_and_not_the_reader(
    engine, session, fanout, redis_client: redis.Redis
):
    events = engine.store.keys.part(ref_of(engine, session), "events")
    last = last_id(engine, session)
    with fanout.watch(session, after=last) as mine:
        redis_client.rename(events, "aside")
        redis_client.set(events, "no stream")
        with pytest.raises(StreamCut):
            wait_until(lambda: mine.take(1.0))
        redis_client.rename("aside", events)
    with fanout.watch(session, after=last) as again:
        written = add_event(engine, session)
        assert taken(again, written) == [written]


def test_whoever_watches_a_fanout_that_is_closed_is_sent_away(session, fanout):
    with fanout.watch(session, after="0-0") as before:
        fanout.close()
        with pytest.raises(StreamCut):
            before.take(5.0)
    with fanout.watch(session, after="0-0") as after, pytest.raises(StreamCut):
        after.take(5.0)
