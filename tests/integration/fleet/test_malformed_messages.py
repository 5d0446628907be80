"""A real worker drops messages that it cannot use, and carries out the steps behind them."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from app.core.addresses import SessionRef
from tasks import stale_messages
from tests.fleet import Fleet
from tests.redis_users import of_broker
from tests.waiting import wait_until

QUEUE = "agents@default"
#: What a letter bomb to a terminal starts with: it must not reach the log.
ESCAPE = b"\x1b]52;c;ZWNobw==\x07"
DEEP = b"[" * 100_000

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)


def encoded(body: object) -> str:
    return base64.b64encode(json.dumps(body).encode()).decode()


def arguments(first: object = "gone", **embed: object) -> list[Any]:
    parts = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return [[first, "gone", "step"], {}, {**parts, **embed}]


def envelope(**changed: Any) -> dict[str, Any]:
    """A message of Celery's, as kombu writes it, to a session that does not exist."""
    whole: dict[str, Any] = {
        "body": encoded(arguments()),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": "leadhand.tool",
            "id": "a-message",
            "eta": None,
            "expires": None,
            "group": None,
            "retries": 0,
            "timelimit": [None, None],
            "root_id": "a-message",
            "parent_id": None,
            "argsrepr": "()",
            "kwargsrepr": "{}",
            "origin": "test",
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": "a-message",
            "reply_to": "",
            "priority": 5,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": QUEUE},
            "body_encoding": "base64",
            "delivery_tag": "a-tag",
        },
    }
    return {**whole, **changed}


def without(part: str) -> dict[str, Any]:
    return {name: value for name, value in envelope().items() if name != part}


def header(**changed: Any) -> dict[str, Any]:
    return envelope(headers={**envelope()["headers"], **changed})


def property_(**changed: Any) -> dict[str, Any]:
    return envelope(properties={**envelope()["properties"], **changed})


#: An object that kombu decodes to a date, which this is not.
ODD_DATE = {"__type__": "datetime", "__value__": "x"}


def raw_of(message: object) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


MALFORMED: dict[str, object] = {
    "no JSON": b"not json",
    "escape sequences": ESCAPE + b"\x9b2J",
    "null": None,
    "an empty list": [],
    "a number": 7,
    "broken UTF-8": b'{"body": "\xff\xfe"}',
    "lists that are too deep": DEEP,
    "an empty object": {},
    "an object that kombu decodes": b'{"__type__": "datetime", "__value__": "x"}',
    "the same with an escaped key": raw_of(envelope(more=ODD_DATE)).replace(
        b"__type__", b"\\u005f_type__"
    ),
    "no body": without("body"),
    "no headers": without("headers"),
    "no properties": without("properties"),
    "headers that are a list": envelope(headers=[1]),
    "properties that are a list": envelope(properties=[1]),
    "bad base64": envelope(body="!"),
    "a body that is a number": envelope(body=5),
    "an unknown encoding": property_(body_encoding="rot13"),
    "an encoding that is a list": property_(body_encoding=["base64"]),
    "a delivery tag that is a dict": property_(delivery_tag={}),
    "delivery info that is a list": property_(delivery_info=[1]),
    "a content type that is a list": envelope(**{"content-type": ["json"]}),
    "pickle": envelope(**{"content-type": "application/x-python-serialize"}),
    "an unknown charset": envelope(**{"content-encoding": "nonsense"}),
    "a body that is {}": envelope(body=encoded({})),
    "a body that is []": envelope(body=encoded([])),
    "a body that is null": envelope(body=encoded(None)),
    "a body of keywords": envelope(body=encoded({"args": 5, "kwargs": {}})),
    "a bad timelimit": header(timelimit="soon"),
    "a timelimit of texts": header(timelimit=["x", {}]),
    "a timelimit of three": header(timelimit=[1, 2, 3]),
    "an id that is a dict": header(id={"a": 1}),
    "an id that is null": header(id=None),
    "a task that is a list": header(task=["leadhand.tool"]),
    "an unknown task": header(task="rm"),
    "a bad eta": header(eta={"when": 1}),
    "a bad expiry": header(expires=[1]),
    "retries that are a dict": header(retries={}),
    "a header that hides a method": header(get=5, update=5, chord=5, task_id=[]),
    "an unknown compression": header(compression="zip of the future"),
    "arguments that are a dict": envelope(body=encoded([{}, {}, {}])),
    "one argument": envelope(body=encoded([["x"], {}, {}])),
    "a session that is a dict": envelope(body=encoded(arguments({"a": 1}))),
    "keywords": envelope(body=encoded([["a", "a", "b"], {"more": 1}, {}])),
    "an embed that is a list": envelope(body=encoded([["a", "a", "b"], {}, [1]])),
    "a chain that is a number": envelope(body=encoded(arguments(chain=5))),
    "a chord that is a list": envelope(body=encoded(arguments(chord=[1]))),
}
#: Harmless in itself: Celery takes such headers for what they are not.
IGNORED = {"a header that hides a method", "an unknown charset"}


class Stand:
    """One worker, and its queue."""

    def __init__(self, fleet: Fleet, broker: redis.Redis) -> None:
        self.fleet = fleet
        self.broker = broker
        self.process: subprocess.Popen[bytes] = fleet.worker("one")
        self.key = QUEUE + "\x06\x165"
        self.doer = fleet.script("doer.py", "print('done')")

    def push(self, raw: bytes) -> None:
        self.broker.rpush(self.key, raw)

    def works_on(self) -> None:
        """Whether a session runs to its end in the very same worker process."""
        session = self.fleet.loop(self.doer, "true")
        status = self.fleet.engine.queries.session
        wait_until(
            lambda: self.process.poll() is not None or status(session).status == "completed",
            timeout=20,
        )
        assert self.process.poll() is None, self.log[-9000:].decode()
        wait_until(lambda: self.broker.llen(self.key) == 0)

    @property
    def log(self) -> bytes:
        return (self.fleet.folder / "one.log").read_bytes()


@pytest.fixture(scope="module")
def stand(module_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    broker_url = of_broker(module_store_url)
    folder = tmp_path_factory.mktemp("malformed")
    fleet = Fleet(folder, module_store_url, broker_url, lease_s=30, LEADHAND_PLACE="default")
    with redis.Redis.from_url(broker_url) as broker:
        yield Stand(fleet, broker)
    fleet.close()


@pytest.mark.parametrize("kind", MALFORMED)
def test_worker_drops_a_malformed_message_and_runs_the_steps_behind_it(
    stand: Stand, kind: str
) -> None:
    before = len(stand.log)
    stand.push(raw_of(MALFORMED[kind]))
    stand.works_on()

    lines = stand.log[before:]
    assert b"Traceback" not in lines
    if kind in IGNORED:
        return
    dropped = [line for line in lines.splitlines() if b"malformed message dropped" in line]
    assert len(dropped) == 1, lines
    assert QUEUE.encode() in dropped[0]
    assert b"why=" in dropped[0]
    assert len(dropped[0]) < 700
    assert all(32 <= byte < 127 for byte in dropped[0])


def test_steps_wait_behind_a_row_of_malformed_messages(stand: Stand) -> None:
    for message in MALFORMED.values():
        stand.push(raw_of(message))
    stand.works_on()


def test_malformed_broadcast_does_not_end_the_worker(stand: Stand) -> None:
    heard = [
        stand.broker.publish("/1.celery.pidbox", raw_of(message)) for message in MALFORMED.values()
    ]
    assert all(heard)
    stand.works_on()


def changed(draw: Any, value: Any, depth: int = 3) -> Any:
    """The same value with one part of it drawn anew."""
    if not isinstance(value, dict) or not value or depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(JSON)
    name = draw(st.sampled_from(sorted(value)))
    if draw(st.booleans()):
        return {**value, name: changed(draw, value[name], depth - 1)}
    return {**value, draw(st.text(max_size=8)): draw(JSON)}


@st.composite
def message_like(draw: Any) -> bytes:
    """A message with one part drawn anew: of its envelope, of its body, or of its bytes."""
    kind = draw(st.sampled_from(["envelope", "body", "bytes"]))
    if kind == "body":
        whole = {"args": arguments()[0], "kwargs": {}, "embed": arguments()[2]}
        odd = changed(draw, whole)
        body = list(odd.values()) if isinstance(odd, dict) else odd
        return raw_of(envelope(body=encoded(body)))
    if kind == "envelope":
        return raw_of(changed(draw, envelope()))
    raw = raw_of(envelope())
    at: int = draw(st.integers(0, len(raw)))
    inserted: bytes = draw(st.binary(max_size=4))
    return raw[:at] + inserted + raw[at + draw(st.integers(0, 4)) :]


@settings(
    max_examples=8,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(st.lists(message_like(), min_size=20, max_size=40))
@pytest.mark.timeout(180)
@pytest.mark.slow
def test_worker_outlives_fuzzed_messages(stand: Stand, rows: list[bytes]) -> None:
    for raw in rows:
        stand.push(raw)
    stand.works_on()


@given(message_like() | st.sampled_from([raw_of(one) for one in MALFORMED.values()]))
def test_pool_process_reads_a_message_or_leaves_it(raw: bytes) -> None:
    found = stale_messages.parse_message(raw)

    assert found is None or all(isinstance(part, str) for part in (*found.ref, found.address))


def test_whole_message_is_read() -> None:
    found = stale_messages.parse_message(raw_of(envelope()))

    assert found == stale_messages.Message(
        "a-message", "leadhand.tool", SessionRef("gone", "gone"), "step"
    )
