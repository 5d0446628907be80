"""The fan-out of events: every client gets each event once, in order, whenever it joins."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.events import EventStream
from api.fanout import Fanout, StreamCut, Subscription
from app.views import Event, SessionView
from tests.memory_engine import MemoryEngine
from tests.waiting import wait_until

S = "00000001"


@pytest.fixture
def engine() -> MemoryEngine:
    engine = MemoryEngine()
    engine.put(S, "active")
    return engine


@pytest.fixture
def fanout(engine) -> Iterator[Fanout]:
    fanout = Fanout(engine)
    yield fanout
    fanout.close()


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


def test_clients_that_join_at_different_places_each_get_what_they_miss(engine, fanout):
    ids = [engine.tell(S, "t") for _ in range(10)]
    with (
        fanout.watch(S, after=ids[7]) as late,
        fanout.watch(S, after=ids[2]) as early,
        fanout.watch(S, after="9999-0") as ahead,
    ):
        ids += [engine.tell(S, "t") for _ in range(5)]
        assert taken(early, ids[-1]) == ids[3:]
        assert taken(late, ids[-1]) == ids[8:]
        assert ahead.take(0.01) is None


def test_clients_that_join_while_events_come_miss_none(engine, fanout):
    last = threading.Event()
    ids: list[str] = []

    def tell() -> None:
        ids.extend(engine.tell(S, "t") for _ in range(900))
        last.set()

    teller = threading.Thread(target=tell)
    seen: list[list[str]] = []

    def follow(after: str) -> None:
        with fanout.watch(S, after=after) as mine:
            seen.append([after, *taken(mine, "1899-0")])

    teller.start()
    followers = [threading.Thread(target=follow, args=(f"{1000 + n * 100}-0",)) for n in range(8)]
    for follower in followers:
        follower.start()
    for thread in (teller, *followers):
        thread.join(timeout=20)
    assert last.is_set()
    starts = [ids.index(got[0]) for got in seen]
    assert sorted(starts) == [n * 100 for n in range(8)]
    # A client that fell behind by more than its queue is cut off, which none of these did.
    assert [got == ids[start:] for got, start in zip(seen, starts, strict=True)] == [True] * 8


class SlowToRead(MemoryEngine):
    """Holds one read back, so that a client can join while it is under way."""

    def __init__(self) -> None:
        super().__init__()
        self.reading = threading.Event()
        self.go_on = threading.Event()

    def events_many(
        self, after: Mapping[str, str], *, block_ms: int = 0
    ) -> Mapping[str, list[Event]]:
        found = super().events_many(after, block_ms=block_ms)
        if found and not self.go_on.is_set():
            self.reading.set()
            assert self.go_on.wait(10)
        return found


def test_a_client_that_joins_during_a_read_misses_nothing_before_it():
    engine = SlowToRead()
    engine.put(S, "active")
    ids = [engine.tell(S, "t") for _ in range(10)]
    fanout = Fanout(engine)
    with fanout.watch(S, after=ids[7]) as ahead:
        assert engine.reading.wait(10)
        with fanout.watch(S, after=ids[2]) as behind:
            engine.go_on.set()
            assert taken(behind, ids[-1]) == ids[3:]
        assert taken(ahead, ids[-1]) == ids[8:]
    fanout.close()


class EndsMeanwhile(MemoryEngine):
    """Its session goes on and ends just before somebody looks whether it has."""

    def session(self, session: str) -> SessionView:
        if super().session(session).status == "active":
            self.tell(session, "t")
            self.end(session)
        return super().session(session)


def test_what_came_just_before_the_end_is_told_before_it():
    engine = EndsMeanwhile()
    engine.put(S, "active")
    fanout = Fanout(engine)
    told = "".join(EventStream(engine, fanout, S, after="0-0").told())
    assert told.count("event: t\n") == told.count("event: session.completed\n") == 1
    assert told.index("event: session.completed") < told.index("event: end")
    fanout.close()


def test_a_stream_that_breaks_off_says_why(engine, fanout):
    told = EventStream(engine, fanout, S, after="0-0").told()
    assert next(told) == "retry: 1000\n\n"
    first = engine.tell(S, "t")
    while f"id: {first}" not in next(told):
        pass
    fanout.close()
    assert list(told) == ['event: cut\ndata: {"why": "closing"}\n\n']


def test_a_stream_whose_token_has_ended_says_so(engine, fanout, monkeypatch):
    monkeypatch.setattr("api.events.RECHECK_S", 0)
    engine.tell(S, "session.created")
    stream = EventStream(engine, fanout, S, after="0-0", admitted=lambda: False)
    told = stream.told()
    assert "session.created" in next(told) + next(told)
    engine.tell(S, "t")
    assert list(told) == ['event: cut\ndata: {"why": "token"}\n\n']


def test_a_session_that_is_deleted_meanwhile_ends_its_streams(engine, fanout):
    engine.tell(S, "session.created")
    told = EventStream(engine, fanout, S, after="0-0").told()
    next(told)
    engine.put(S, "completed")
    engine.delete(S)
    assert list(told) == ['event: end\ndata: {"status": "deleted"}\n\n']


def test_a_client_that_falls_behind_is_cut_off_and_the_others_are_not(engine):
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


def test_a_store_that_is_away_for_a_while_costs_no_event(engine, fanout):
    with fanout.watch(S, after="0-0") as mine:
        first = engine.tell(S, "t")
        assert taken(mine, first) == [first]
        engine.away = True
        second = engine.tell(S, "t")
        assert mine.take(0.4) is None
        engine.away = False
        assert taken(mine, second) == [second]


def test_a_fault_of_the_reader_ends_its_streams_and_not_the_reader(engine, fanout, monkeypatch):
    with fanout.watch(S, after="0-0") as mine:
        monkeypatch.setattr(engine, "_events", None)
        with pytest.raises(StreamCut):
            wait_until(lambda: mine.take(1.0))
        monkeypatch.undo()
    with fanout.watch(S, after="0-0") as again:
        told = engine.tell(S, "t")
        assert taken(again, told) == [told]


def test_whoever_watches_a_fanout_that_is_closed_is_sent_away(engine, fanout):
    with fanout.watch(S, after="0-0") as before:
        fanout.close()
        with pytest.raises(StreamCut):
            before.take(5.0)
    with fanout.watch(S, after="0-0") as after, pytest.raises(StreamCut):
        after.take(5.0)
