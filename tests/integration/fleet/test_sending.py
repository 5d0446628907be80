"""Messages that we write ourselves are those that kombu and Celery would have written."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
import redis
from celery import Celery, chain, chord, signature

from app.core.addresses import SessionRef
from app.core.program import Action, Program, Step
from app.core.records import Hint
from app.engine import Engine
from app.settings import Settings
from tasks import publisher, transport
from tasks.bootstrap import make_engine
from tasks.canvas import Canvas, body_of, remember, send_on, split_canvas
from tasks.celery_app import make_celery
from tasks.publisher import KeptConnection, Letter, Publisher
from tasks.steps import register
from tests.redis_users import of_broker
from tests.wire import Wire
from workers.host import event_batching

ADDRESS = "loop~1[1]/do"
LETTER = Letter("leadhand.tool", ("abc", "root", ADDRESS), "tools@here", 5, "an-id")
#: What differs from message to message.
EVER_NEW = {"delivery_tag", "timestamp", "clock", "task_id", "id", "uuid", "correlation_id"}
#: Where an answer would go, which nobody waits for; and what Celery leaves in options besides.
NOT_OURS = {"reply_to", "group_index", "group_id", "root_id", "parent_id"}


@pytest.fixture
def celery(broker_url: str) -> Celery:
    app = make_celery(Settings(broker_url=broker_url))
    register(app)
    return app


def taken(broker: redis.Redis) -> list[tuple[str, Any]]:
    """Every message that stands at the broker, with its list; it is taken off."""
    found = []
    for key in sorted(broker.scan_iter(_type="LIST")):
        while (raw := broker.rpop(key)) is not None:
            found.append((key, opened(str(raw))))
    return found


def opened(raw: str) -> Any:
    message = json.loads(raw)
    message["body"] = json.loads(base64.b64decode(message["body"]))
    return message


def without(message: Any, names: set[str]) -> Any:
    if isinstance(message, dict):
        return {k: without(v, names) for k, v in message.items() if k not in names}
    if isinstance(message, (list, tuple)):
        return [without(item, names) for item in message]
    return message


@pytest.mark.parametrize("priority", [0, 3, 5, 9])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"chain": [{"task": "leadhand.check", "args": ["abc", "root", "x"]}]},
        {"chord": {"task": "leadhand.judge"}, "group": "a-group", "place": 2},
    ],
)
def test_a_message_and_its_event_are_what_kombu_writes(
    celery: Celery, broker_client: redis.Redis, priority: int, more: dict[str, Any]
) -> None:
    letter = LETTER._replace(priority=priority, **more)
    post = Publisher(celery)
    with broker_client.pubsub() as events:
        events.psubscribe("*celeryev*")
        post.send([letter])  # by kombu, who declares the queue
        post.send([letter])
        heard = [opened(m["data"]) for m in listened(events, 2)]
    theirs, ours = taken(broker_client)
    assert without(ours, {"delivery_tag"}) == without(theirs, {"delivery_tag"})
    assert ours[1]["properties"]["delivery_tag"] == "an-id"
    assert without(heard[1], EVER_NEW) == without(heard[0], EVER_NEW)
    assert {event["body"]["uuid"] for event in heard} == {"an-id"}


def published(broker: redis.Redis) -> int:
    """How many events were published since the counters began anew."""
    return int(broker.info("commandstats").get("cmdstat_publish", {}).get("calls", 0))


def test_events_are_sent_only_while_a_program_receives_them(
    celery: Celery, broker_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publisher, "QUIET_S", 3600.0)
    post = Publisher(celery)
    post.send([LETTER])  # by kombu
    broker_client.config_resetstat()
    for _ in range(5):
        post.send([LETTER])
    assert published(broker_client) == 1  # by its reply it is known that there is no receiver
    monkeypatch.setattr(publisher, "QUIET_S", 0.0)
    post = Publisher(celery)
    post.send([LETTER])
    with broker_client.pubsub() as events:
        events.psubscribe("*celeryev*")
        assert events.get_message(timeout=30) is not None
        monkeypatch.setattr(publisher, "QUIET_S", 3600.0)
        for _ in range(5):
            post.send([LETTER])
        assert len(listened(events, 5)) == 5
    assert len(taken(broker_client)) == 12


def test_a_worker_sends_task_events_only_while_a_program_receives_them(
    celery: Celery, broker_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    listeners = publisher.EventListeners()
    monkeypatch.setattr(transport, "LISTENERS", listeners)
    monkeypatch.setattr(event_batching, "LISTENERS", listeners)
    monkeypatch.setattr(publisher, "QUIET_S", 3600.0)
    with (
        broker_client.pubsub() as events,
        celery.connection_for_write() as connection,
        celery.events.Dispatcher(
            connection, groups=["task"], buffer_group=["task"], enabled=True
        ) as dispatcher,
    ):
        dispatcher.groups = event_batching._WantedGroups({"worker", "task"})
        broker_client.config_resetstat()
        for _ in range(3):
            dispatcher.send("task-started", uuid="an-id")
            dispatcher.flush()
        assert published(broker_client) == 1
        dispatcher.send("worker-heartbeat")
        assert published(broker_client) == 2  # those of workers are always sent
        listeners.note(1)
        events.psubscribe("*celeryev*")
        assert events.get_message(timeout=30) is not None
        for _ in range(3):
            dispatcher.send("task-started", uuid="an-id")
            dispatcher.flush()
        assert len(listened(events, 3)) == 3


def listened(events: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = events.get_message(timeout=5)
        assert message is not None
        found += [message] if message["type"] == "pmessage" else []
    return found


def task(action: str, address: str, queue: str, app: Celery) -> Any:
    arguments, options = ("abc", "root", address), {"queue": queue, "priority": 5}
    name = f"leadhand.{action}"
    return signature(name, args=arguments, immutable=True, app=app, options=options)


def test_a_chain_is_written_as_celery_writes_it(celery: Celery, broker_client: redis.Redis) -> None:
    steps = tuple(Step(id=name, action=Action.TOOL) for name in ("a", "b"))
    chain(task("tool", "a", "tools", celery), task("tool", "b", "tools", celery)).apply_async()
    theirs = taken(broker_client)
    Canvas(celery).publish(SessionRef("abc", "root"), Program(name="p", body=steps), [hint("a")])
    ours = taken(broker_client)
    assert without(ours, EVER_NEW | NOT_OURS) == without(theirs, EVER_NEW | NOT_OURS)


def hint(name: str, action: Action = Action.TOOL, queue: str = "tools") -> Hint:
    return Hint(queue=queue, address=name, action=action.value, path=name, label=name)


def checked(doer: str) -> Program:
    """A doer, checks side by side, and what joins them."""
    do = Step(id=doer, action=Action.TOOL)
    checks = [Step(id=f"check{n}", action=Action.CHECK, needs=(doer,)) for n in (1, 2)]
    join = Step(id="join", action=Action.TOOL, needs=("check1", "check2"))
    return Program(name="p", body=(do, *checks, join))


def test_a_chord_within_a_chain_is_written_as_celery_writes_it(
    celery: Celery, broker_client: redis.Redis
) -> None:
    header = [task("check", f"check{n}", "checks@x", celery) for n in (1, 2)]
    body = task("tool", "join", "tools@x", celery)
    chain(task("tool", "do", "tools@x", celery), chord(header, body)).apply_async()
    theirs = taken(broker_client)
    Canvas(celery).publish(SessionRef("abc", "root"), checked("do"), [hint("do", queue="tools@x")])
    ours = taken(broker_client)
    assert without(ours, EVER_NEW | NOT_OURS) == without(theirs, EVER_NEW | NOT_OURS)


def test_a_chord_is_written_as_celery_writes_it(celery: Celery, broker_client: redis.Redis) -> None:
    header = [task("check", f"check{n}", "checks", celery) for n in (1, 2)]
    chord(header, task("tool", "join", "tools", celery)).apply_async()
    theirs = taken(broker_client)
    hints = [hint(f"check{n}", Action.CHECK, "checks") for n in (1, 2)]
    Canvas(celery).publish(SessionRef("abc", "root"), checked("do"), hints)
    ours = taken(broker_client)
    names = EVER_NEW | NOT_OURS | {"group"}
    assert without(ours, names) == without(theirs, names)
    assert len({message["headers"]["group"] for _, message in ours}) == 1


def test_message_after_the_server_closed_the_kept_connection_is_sent_once(
    celery: Celery, broker_client: redis.Redis
) -> None:
    post = Publisher(celery)
    for _ in range(2):
        post.send([LETTER])
    broker_client.client_kill_filter(_type="normal", skipme=True)
    for _ in range(2):
        post.send([LETTER])
    assert len(taken(broker_client)) == 4


def test_threads_that_send_at_once_use_connections_of_their_own(
    celery: Celery, broker_client: redis.Redis
) -> None:
    kept, pool = KeptConnection(), broker_client.connection_pool
    with kept.of(pool) as first, kept.of(pool) as second:
        assert first is not second
    with kept.of(pool) as again:
        assert again in (first, second)
    with kept.of(pool) as once_more:
        assert once_more is again


def send_without_reading(connection: Any) -> None:
    connection.send_command("PING")
    raise RuntimeError


def test_a_kept_connection_is_not_used_after_an_error(
    celery: Celery, broker_client: redis.Redis
) -> None:
    kept, pool = KeptConnection(), broker_client.connection_pool
    with pytest.raises(RuntimeError), kept.of(pool) as connection:
        send_without_reading(connection)
    with kept.of(pool) as connection:
        connection.send_command("ECHO", "x")
        assert connection.read_response() == "x"


@pytest.mark.slow
def test_messages_wait_for_no_broker_that_came_back(
    broker_url: str, broker_client: redis.Redis
) -> None:
    """A kept connection that was cut is not the end of a message."""
    with Wire(broker_url) as wire:
        post = Publisher(make_celery(Settings(broker_url=wire.url)))
        for _ in range(2):
            post.send([LETTER])
        assert wire.black_hole() > 0
        post.send([LETTER])
    assert len(taken(broker_client)) == 3


def test_a_broker_with_its_own_names_for_keys_is_left_to_kombu(
    broker_client: redis.Redis, redis_url: str
) -> None:
    # The users of a fleet have no such keys.
    celery = make_celery(Settings(broker_url=of_broker(redis_url)))
    celery.conf.broker_transport_options["global_keyprefix"] = "theirs:"
    post = Publisher(celery)
    for _ in range(2):
        post.send([LETTER])
    assert [key for key, _ in taken(broker_client)] == ["theirs:tools@here\x06\x165"] * 2


def test_steps_of_a_session_are_told_of_in_one_go(
    store_url: str, broker_url: str, broker_client: redis.Redis
) -> None:
    engine: Engine
    engine, _ = make_engine(Settings(redis_url=store_url, broker_url=broker_url, secret="s"))
    wide = tuple(Step(id=f"s{n}", action=Action.TOOL) for n in range(20))
    hints = [hint(step.id) for step in wide]
    canvas = engine.transitions._carrier
    for _ in range(2):
        canvas.publish(SessionRef("abc", "root"), Program(name="p", body=wide), hints)
    broker_client.config_resetstat()
    canvas.publish(SessionRef("abc", "root"), Program(name="p", body=wide), hints)
    assert broker_client.info("stats")["total_reads_processed"] <= 10  # the server reads 16 kB
    assert len(taken(broker_client)) == 60


class Request:
    """What Celery hands to a task of the message that it came with."""

    def __init__(self, message: Any) -> None:
        embed = message["body"][2]
        self.chain, self.chord = embed["chain"], embed["chord"]


def carried(celery: Celery, broker: redis.Redis, by: str) -> Request:
    """A message with a chord of two checks after its own step, written by Celery or by us."""
    if by == "celery":
        header = [task("check", f"check{n}", "checks", celery) for n in (1, 2)]
        body = task("tool", "join", "tools", celery)
        chain(task("tool", "do", "tools", celery), chord(header, body)).apply_async()
    else:
        Canvas(celery).publish(SessionRef("abc", "root"), checked("do"), [hint("do")])
    ((_, message),) = taken(broker)
    return Request(message)


@pytest.mark.parametrize("by", ["celery", "us"])
def test_what_a_message_carried_goes_on_with_its_join(
    celery: Celery, broker_client: redis.Redis, by: str
) -> None:
    request = carried(celery, broker_client, by)
    released = [hint(f"check{n}", Action.CHECK, "checks") for n in (1, 2)]
    onward = split_canvas(request, celery, [*released, hint("another")])
    assert request.chain is None  # Celery does not send it once more
    assert [left.address for left in onward.rest] == ["another"]
    send_on(SessionRef("abc", "root"), celery, onward.letters)
    sent = [message for _, message in taken(broker_client)]
    assert [message["body"][0] for message in sent] == [
        ["abc", "root", "check1"],
        ["abc", "root", "check2"],
    ]
    assert {m["body"][2]["chord"]["args"][2] for m in sent} == {"join"}
    assert body_of(Request(sent[0]), celery) is None
    last = Request(sent[1])
    assert not split_canvas(last, celery, [hint("join")]).rest  # the backend sends it
    remember(last, [hint("join")])
    body = body_of(last, celery)
    assert body is not None
    assert tuple(body.args) == ("abc", "root", "join")


@pytest.mark.parametrize("by", ["celery", "us"])
def test_what_was_not_released_as_it_was_carried_is_cut(
    celery: Celery, broker_client: redis.Redis, by: str
) -> None:
    request = carried(celery, broker_client, by)
    released = [hint("check1", Action.CHECK, "checks")]
    onward = split_canvas(request, celery, released)
    assert request.chain is None
    assert (onward.letters, onward.rest) == ([], released)
