"""What a pool process takes from the queues by itself, behind a message of Celery's."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery

from app.engine import About
from app.keys import SessionRef
from app.records import Hint
from app.settings import Settings
from benchmarks import programs
from tasks.celery_app import make_celery
from tasks.sending import Letter, new_id, post_of
from tasks.steps import BOUND, register
from tasks.taking import TAKING_S, Taking
from tests.integration.fleet import Fleet
from tests.wire import Wire

HINT = Hint(queue="tools", address="next", action="tool", path="next", label="next", priority=5)


class Carrier:
    """Writes down what it is asked to carry out."""

    def __init__(self) -> None:
        self.carried: list[str] = []
        self.published: list[str] = []
        self.hints: Sequence[Hint] | None = ()
        self.fails = False
        self.sends: Callable[[], object] = str
        self.meanwhile: Callable[[str], object] = str

    def __call__(self, ref: SessionRef, address: str) -> Sequence[Hint] | None:
        self.carried.append(f"{ref.id} {address}")
        self.meanwhile(address)
        if self.fails:
            raise RuntimeError("our fault")
        return self.hints

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        self.sends()
        self.published += [f"{ref.id} {hint.address}" for hint in hints]


@pytest.fixture
def carrier(monkeypatch: pytest.MonkeyPatch) -> Carrier:
    carrier = Carrier()
    monkeypatch.setattr(BOUND, "carry", carrier)
    return carrier


@pytest.fixture
def celery(broker_url: str) -> Iterator[Celery]:
    celery = make_celery(Settings(broker_url=broker_url))
    register(celery)
    yield celery
    celery.close()


@pytest.fixture
def broker(broker_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(broker_url) as client:
        yield client


def send(celery: Celery, name: str, *, queue: str = "tools", priority: int = 5) -> str:
    args = [name, name, "step"]
    return str(celery.send_task("leadhand.tool", args, queue=queue, priority=priority).id)


def taking(celery: Celery, *queues: str, draining: bool = False) -> Taking:
    names = queues or ("tools",)
    return Taking(celery, names, hostname="w@here", draining=lambda: draining)


def now() -> float:
    return time.monotonic()


def test_what_is_urgent_goes_first_and_then_who_came_first(
    celery: Celery, carrier: Carrier
) -> None:
    for name, priority in (("a", 5), ("b", 9), ("c", 5), ("d", 0)):
        send(celery, name, priority=priority)
    assert taking(celery).go_on(now()) == 4
    assert carrier.carried == ["d step", "a step", "c step", "b step"]


def test_each_queue_has_its_turn(celery: Celery, carrier: Carrier) -> None:
    for number in range(3):
        send(celery, f"t{number}")
        send(celery, f"c{number}", queue="checks")
    taking(celery, "tools", "checks").go_on(now())
    kinds = "".join(one[0] for one in carrier.carried)
    assert kinds in {"tctctc", "ctctct"}


def test_what_a_step_releases_is_sent_whatever_its_message_carries(
    celery: Celery, carrier: Carrier
) -> None:
    carrier.hints = [HINT]
    send(celery, "a")
    taking(celery).go_on(now())
    assert carrier.published == ["a next"]


def test_a_refused_hint_releases_nothing(celery: Celery, carrier: Carrier) -> None:
    carrier.hints = None
    send(celery, "a")
    assert taking(celery).go_on(now()) == 1
    assert carrier.published == []


def test_the_time_behind_one_message_ends(celery: Celery, carrier: Carrier) -> None:
    send(celery, "a")
    assert taking(celery).go_on(now() - TAKING_S) == 0
    assert carrier.carried == []


def test_a_worker_that_is_about_to_end_takes_nothing(
    celery: Celery, carrier: Carrier, broker: redis.Redis
) -> None:
    send(celery, "a")
    assert taking(celery, draining=True).go_on(now()) == 0
    assert broker.llen("tools\x06\x165") == 1


def test_a_message_of_somebody_else_stays_where_it_stood(
    celery: Celery, carrier: Carrier, broker: redis.Redis
) -> None:
    celery.send_task("others.task", [1], queue="tools", priority=0)
    send(celery, "a")
    before = broker.lrange("tools", 0, -1)
    assert taking(celery).go_on(now()) == 0
    assert broker.lrange("tools", 0, -1) == before
    assert carrier.carried == []


def test_a_fault_of_ours_takes_no_worker_with_it(
    celery: Celery, carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    carrier.fails = True
    mine = taking(celery)
    for name in "ab":
        send(celery, name)
        mine.go_on(now())
    assert carrier.carried == ["a step", "b step"]
    assert "message not carried out" in caplog.text


def test_a_broker_that_went_away_is_found_again(
    celery: Celery, carrier: Carrier, broker: redis.Redis
) -> None:
    mine = taking(celery)
    mine.go_on(now())
    broker.client_kill_filter(_type="normal", skipme=True)
    send(celery, "a")
    tries = 0
    while not carrier.carried and tries < 3:
        tries += 1
        mine.go_on(now())
    assert carrier.carried == ["a step"]


def test_a_broker_that_is_away_is_no_fault_of_ours(
    broker_url: str, carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(broker_url) as wire:
        mine = taking(make_celery(Settings(broker_url=wire.url)))
        assert mine.go_on(now()) == 0
    assert mine.go_on(now()) == 0
    assert [record.levelname for record in caplog.records if record.name == "tasks.taking"] == [
        "WARNING"
    ]


def test_a_server_before_redis_7_leaves_messages_to_celery(
    celery: Celery, carrier: Carrier, broker: redis.Redis, store_url: str
) -> None:
    with redis.Redis.from_url(store_url) as server:
        most = {"keys": ["*"], "channels": ["*"], "commands": ["+@all", "-lmpop"]}
        server.acl_setuser("old", enabled=True, nopass=True, **most)
        try:
            mine = taking(make_celery(Settings(broker_url=_as("old", broker))))
            send(celery, "a")
            assert [mine.go_on(now()), mine.go_on(now())] == [0, 0]
        finally:
            server.acl_deluser("old")
    assert broker.llen("tools\x06\x165") == 1


def _as(user: str, broker: redis.Redis) -> str:
    given = broker.connection_pool.connection_kwargs
    return f"redis://{user}:x@{given['host']}:{given['port']}/{given['db']}"


def test_events_tell_of_what_was_taken(celery: Celery, carrier: Carrier) -> None:
    told: list[dict[str, Any]] = []
    words = ("task-received", "task-started", "task-succeeded")
    with celery.connection_for_read() as connection:
        receiver = celery.events.Receiver(connection, handlers={"*": told.append})
        with receiver.consumer_context() as (heard, _channel, _consumers):
            while not told:  # nothing is heard before the first look has subscribed
                send(celery, "first", queue="other")
                with suppress(TimeoutError):
                    heard.drain_events(timeout=0.1)
            told.clear()
            ids = [send(celery, name) for name in "ab"]
            taking(celery).go_on(now())
            while sum(event["uuid"] in ids for event in told) < len(ids) * (1 + len(words)):
                heard.drain_events(timeout=5)
    of_ours = [(event["type"], event["uuid"]) for event in told if event["uuid"] in ids]
    assert [one for one in of_ours if one[0] != "task-sent"] == [
        (word, id_) for id_ in ids for word in words
    ]
    received = next(event for event in told if event["type"] == "task-received")
    assert received["name"] == "leadhand.tool"
    assert received["args"] == "('a', 'a', 'step')"
    assert received["hostname"] == "w@here"


def test_what_is_under_way_is_told_before_it_ends(celery: Celery, carrier: Carrier) -> None:
    told: list[dict[str, Any]] = []
    with celery.connection_for_read() as connection:
        receiver = celery.events.Receiver(connection, handlers={"*": told.append})
        with receiver.consumer_context() as (heard, _channel, _consumers):
            while not told:
                send(celery, "first", queue="other")
                with suppress(TimeoutError):
                    heard.drain_events(timeout=0.1)
            told.clear()

            def until_it_is_told(address: str) -> None:
                while not any(event["type"] == "task-started" for event in told):
                    heard.drain_events(timeout=5)

            carrier.meanwhile = until_it_is_told
            send(celery, "a")
            assert taking(celery).go_on(now()) == 1


def test_a_message_that_could_not_be_carried_out_is_told_as_failed(
    celery: Celery, carrier: Carrier
) -> None:
    carrier.fails = True
    mine = taking(celery)
    mine.go_on(now())  # it has what it tells with
    said: list[str] = []
    mine._say = lambda kind, *_, **__: said.append(kind)  # type: ignore[method-assign]
    send(celery, "a")
    mine.go_on(now())
    assert said == ["task-received", "task-started", "task-failed"]


def test_what_a_taken_message_releases_comes_from_no_message_of_celerys(
    celery: Celery, carrier: Carrier, broker: redis.Redis
) -> None:
    post = post_of(celery)
    letter = Letter("leadhand.tool", ("a", "a", "next"), "other", 5, new_id())

    carrier.sends = lambda: post.send([letter])
    carrier.hints = [HINT]
    mine = taking(celery)

    @celery.task(name="leadhand.outer")
    def outer() -> None:
        mine.go_on(now())
        post.send([letter])

    for _ in range(2):  # the first message to a queue is sent by kombu
        send(celery, "a")
        celery.tasks["leadhand.outer"].apply(task_id="outer")
    rows = [json.loads(row) for row in broker.lrange("other\x06\x165", 0, -1)]
    assert [row["headers"]["parent_id"] for row in rows] == ["outer", None, "outer", None]


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=5)
    yield fleet
    fleet.close()


@pytest.mark.timeout(120)
def test_of_a_backlog_celery_carries_a_few_messages_and_its_processes_the_rest(
    fleet: Fleet,
) -> None:
    program = programs.sequence(10, quick=False)
    sessions = [
        fleet.engine.start(program, About(kind="workflow", name="s", cwd=str(fleet.folder))).session
        for _ in range(20)
    ]
    fleet.worker("one")
    for session in sessions:
        assert fleet.ended(session, timeout=60).status == "completed"
    stats = fleet.celery.control.inspect(timeout=5).stats() or {}
    carried = sum(sum(one["total"].values()) for one in stats.values())
    assert 0 < carried < 100, f"{carried} of 200 steps were messages of Celery's own"


def test_a_broker_that_cannot_be_had_is_no_fault_of_ours(
    broker_url: str, carrier: Carrier, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(broker_url) as wire:
        url = wire.url
    assert taking(make_celery(Settings(broker_url=url))).go_on(now()) == 0
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert carrier.carried == []
