"""Celery's Redis transport without redelivery of unacknowledged messages.

kombu stores each received message in a hash until it is acknowledged, to redeliver it a visibility
time-out after the worker's death. This takes two transactions per message, half of the time of a
worker's parent process. Leadhand does not need it: the sweep repeats a lost hint within seconds.
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, Transport
from kombu.transport.virtual import QoS
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps

from tasks import malformed
from tasks.event_listeners import LISTENERS

log = logging.getLogger(__name__)

#: A set in the broker with all declared task queues. It has no TTL, like kombu's bindings. With it,
#: an audit needs no permission to list the broker's keys.
QUEUES = "_kombu.leadhand.queues"
#: The exchange of Celery's events.
EVENTS = "celeryev"


class HintQoS(QoS):
    """Tracks unacknowledged messages in memory only."""

    def restore_unacked(self) -> None:
        """Requeue unacknowledged messages of a closed connection; drop those that fail."""
        lost: Any = super().restore_unacked()
        # Not returned: kombu would write the messages to a file.
        if lost:
            log.warning("hints not requeued", extra={"count": len(lost)})


class HintChannel(Channel):
    """A channel without acknowledgement emulation."""

    ack_emulation = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.QoS = HintQoS  # type: ignore[assignment]  # kombu does the same, of its own

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Bind a queue; record it in QUEUES if it is a task queue (its exchange has its name)."""
        super()._queue_bind(  # type: ignore[misc]  # its stubs do not know it
            exchange, routing_key, pattern, queue
        )
        if queue == exchange:
            with self.conn_or_acquire() as client:
                client.sadd(QUEUES, queue)

    def _put_fanout(self, exchange: str, message: Any, routing_key: str, **kwargs: Any) -> None:
        """Publish a broadcast; notes how many programs receive a task event."""
        if exchange != EVENTS or not routing_key.startswith("task.") or "_publish_batch" in kwargs:
            super()._put_fanout(  # type: ignore[misc]  # its stubs do not know it
                exchange, message, routing_key, **kwargs
            )
            return
        channel: Any = self
        topic = channel._get_publish_topic(exchange, routing_key)
        with self.conn_or_acquire() as client:
            LISTENERS.note(client.publish(topic, dumps(message)))

    def _create_client(self, asynchronous: bool = False) -> Any:
        client = super()._create_client(asynchronous=asynchronous)  # type: ignore[misc]
        client.set_response_callback("BRPOP", self._validate_reply)
        return client

    def _validate_reply(self, reply: Any, **_: object) -> tuple[bytes, bytes] | None:
        """The reply of BRPOP; None, like after a time-out, for a malformed message."""
        if not reply:
            return None
        why = malformed.envelope_fault(reply[1], self)
        if why is not None:
            key = bytes_to_str(reply[0])
            malformed.drop(key.rpartition(self.sep)[0] or key, why, reply[1])
            return None
        return tuple(reply)

    def _handle_message(self, client: Any, reply: Any) -> Any:
        """Receive a broadcast, such as a remote control command; drops malformed data."""
        message = super()._handle_message(client, reply)  # type: ignore[misc]
        if message["data"] and bytes_to_str(message["type"]).endswith("message"):
            exchange = bytes_to_str(message["channel"])
            why = malformed.broadcast_fault(message["data"], exchange, self)
            if why is not None:
                malformed.drop(exchange, why, message["data"])
                return {**message, "data": b""}
        return message


class HintTransport(Transport):
    """The transport of `redis://` URLs."""

    Channel = HintChannel


def install() -> None:
    """Register Leadhand's kombu transport for all Redis broker URLs of this process."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{HintTransport.__name__}"
