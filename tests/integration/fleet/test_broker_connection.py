"""What a lost connection to the broker does to a worker: nothing that lasts."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from kombu import Connection

from app.settings import Settings
from leadhand.models.documents import LoopDocument
from tasks.bootstrap import make_engine
from tasks.celery_app import make_celery
from tasks.transport import HintChannel
from tests.wire import Wire


def lose(connection: Connection, wire: Wire) -> None:
    """What Celery does once its broker is gone, with a message that was not acknowledged."""
    channel: Any = connection.default_channel
    queue = connection.SimpleQueue("agents", channel=channel)
    queue.put({"some": "message"})
    assert queue.get(timeout=5).payload == {"some": "message"}
    wire.__exit__(None, None, None)
    channel.connection.client = None  # Connection.collect comes before the last channel's close
    connection.maybe_close_channel(channel)


def test_a_message_that_cannot_be_given_back_ends_no_worker(broker_url: str) -> None:
    with Wire(broker_url) as wire:
        celery = make_celery(Settings(broker_url=wire.url))
        lose(celery.connection_for_read(), wire)


def test_a_message_in_hand_is_kept_nowhere_else(
    broker_url: str, broker_client: redis.Redis, caplog: Any
) -> None:
    """The sweep finds what a dead worker had taken; a message costs no bookkeeping."""
    celery = make_celery(Settings(broker_url=broker_url))
    with celery.connection_for_read() as connection:
        queue = connection.SimpleQueue("agents")
        queue.put({"some": "message"})
        message = queue.get(timeout=5)
        kept = {*broker_client.scan_iter()}
        assert {name.partition(".")[0] for name in kept} == {"_kombu"}  # how queues are bound
        message.ack()
        queue.close()
        connection.close()
        assert broker_client.llen("agents") == 0
    assert not caplog.records


def test_a_message_that_nobody_began_is_given_back_when_a_worker_ends(broker_url: str) -> None:
    celery = make_celery(Settings(broker_url=broker_url))
    with celery.connection_for_read() as connection:
        queue = connection.SimpleQueue("agents")
        queue.put({"some": "message"}, priority=9)
        queue.get(timeout=5)
    with celery.connection_for_read() as connection:
        again: Any = connection.SimpleQueue("agents").get(timeout=5)
        assert again.payload == {"some": "message"}
        assert again.properties["priority"] == 9
        again.ack()


def test_kombu_of_itself_would_end_it(broker_url: str) -> None:
    """Once this fails, tasks/transport.py is no longer needed."""
    with Wire(broker_url) as wire:
        connection = Connection(wire.url, transport="kombu.transport.redis:Transport")
        with pytest.raises(AttributeError, match="hostname"):
            lose(connection, wire)


def test_a_hint_that_cannot_be_sent_is_no_fault_of_who_submits(
    store_url: str, broker_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a reset kombu publishes on a channel without a connection, and stumbles over it."""

    def stumble(*_: object, **__: object) -> None:
        raise AttributeError("'NoneType' object has no attribute 'client'")

    monkeypatch.setattr(HintChannel, "_put", stumble)
    engine, _ = make_engine(Settings(redis_url=store_url, broker_url=broker_url, secret="s"))
    document = LoopDocument.model_validate({"task": "t", "checkers": ["true"]})
    session = engine.submit.document(document).session
    assert engine.queries.session(session).status == "active"


@pytest.mark.slow
def test_a_broker_that_is_gone_is_taken_for_empty(store_url: str, broker_url: str) -> None:
    with Wire(broker_url) as wire:
        settings = Settings(redis_url=store_url, broker_url=wire.url, secret="s")
        engine, _ = make_engine(settings)
        assert engine.fleet.queues() == []
    document = LoopDocument.model_validate({"task": "t", "checkers": ["true"]})
    engine.submit.document(document)
    assert [queue.depth for queue in engine.fleet.queues()] == [0]
