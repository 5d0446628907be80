"""Celery's Redis transport: no redelivery, and messages of another form are dropped.

kombu stores each received message in a hash until it is acknowledged, to redeliver it a visibility
time-out after the worker's death. This takes two transactions per message, half of the time of a
worker's parent process. Leadhand does not need it: the sweep repeats a lost hint within seconds.

Anything that can write to the broker can put any bytes into a queue. kombu and Celery raise on many
of them in the event loop of a worker's parent, which ends the worker. A malformed message is
dropped instead, with one log line: if it was a hint, the sweep sends the hint again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any

from kombu.transport import TRANSPORT_ALIASES
from kombu.transport.redis import Channel, Transport
from kombu.transport.virtual import Message, QoS
from kombu.utils.encoding import bytes_to_str
from kombu.utils.json import dumps, loads

from tasks.publisher import LISTENERS

log = logging.getLogger(__name__)
#: The key of objects that kombu decodes to something else, as it is and with ASCII escaped.
_DECODED = ('"__type__"', "\\u00")
#: How the channels of remote control end.
_CONTROL = ".pidbox"
#: How many characters of a malformed message the log shows.
EXCERPT = 120
#: A set in the broker with all declared task queues. It has no TTL, like kombu's bindings. With it,
#: an audit needs no permission to list the broker's keys.
QUEUES = "_kombu.leadhand.queues"
#: The exchange of Celery's events.
EVENTS = "celeryev"


def drop(queue: str, why: str, message: object) -> None:
    """Log that a malformed message was dropped, with its fault and an excerpt; removes nothing."""
    raw = message if isinstance(message, (bytes, str)) else repr(message)
    extra = {"queue": _printable(queue), "why": why, "excerpt": _printable(raw)}
    log.error("malformed message dropped", extra=extra)


def envelope_fault(raw: bytes | str, channel: Any) -> str | None:
    """Returns why kombu cannot read a stored message; None if it can."""
    try:
        text = bytes_to_str(raw)
        # kombu's own parser costs five times as much, and differs where one of these is a key.
        as_kombu = any(key in text for key in _DECODED)
        envelope = loads(text) if as_kombu else json.loads(text)
    except Exception:  # noqa: BLE001 - kombu's decoders raise anything
        return "it is not valid JSON"
    return _envelope_fault(envelope, channel)


def broadcast_fault(raw: bytes | str, exchange: str, channel: Any) -> str | None:
    """Returns why a broadcast message is unreadable or no remote control command; None if valid."""
    why = envelope_fault(raw, channel)
    if why is not None or not exchange.endswith(_CONTROL):
        return why
    message = Message(loads(bytes_to_str(raw)), channel=channel)
    try:
        command = message.payload
    except Exception:  # noqa: BLE001 - a decoder raises anything
        return "its body cannot be decoded"
    is_command = isinstance(command, dict) and isinstance(command.get("method"), str)
    clock = (message.headers or {}).get("clock")
    return None if is_command and _count_or_absent(clock) else "it is no remote control command"


def task_fault(message: Any, tasks: Collection[str]) -> str | None:
    """Returns why a message is not a valid task; None if it is, then without unknown headers.

    Headers that nothing here reads are removed, so that they cannot replace what Celery keeps
    under the same names.
    """
    headers = message.headers or {}
    if not isinstance(headers.get("task"), str):
        return "its header task is not a text"
    if headers["task"] not in tasks:
        return "its task is unknown"
    for name, is_valid in _HEADERS.items():
        if not is_valid(headers.get(name)):
            return f"its header {name} is invalid"
    try:
        body = message.payload
    except Exception:  # noqa: BLE001 - a decoder raises anything
        return "its body cannot be decoded"
    message.headers = {name: headers[name] for name in headers if name in _KEPT}
    return _body_fault(body)


def _envelope_fault(envelope: object, channel: Any) -> str | None:
    if not isinstance(envelope, dict):
        return "it is not a JSON object"
    properties = envelope.get("properties")
    if not isinstance(properties, dict):
        return "it has no properties"
    if not isinstance(properties.get("delivery_tag"), str):
        return "its delivery_tag is not a text"
    if not isinstance(properties.get("delivery_info"), dict | None):
        return "its delivery_info is not an object"
    if not isinstance(envelope.get("headers"), dict | None):
        return "its headers are not an object"
    try:
        if envelope.get("body"):
            channel.decode_body(envelope["body"], properties.get("body_encoding"))
    except Exception:  # noqa: BLE001 - a codec raises anything
        return "its body cannot be decoded"
    return None


def parse_arguments(body: object) -> tuple[str, str, str] | None:
    """Returns session id, root id and step address from a task message's body; None if invalid."""
    if not isinstance(body, list) or len(body) != 3 or not isinstance(body[0], list):
        return None
    match body[0]:
        case [str(session), str(root), str(address)]:
            return session, root, address
        case _:
            return None


def _body_fault(body: object) -> str | None:
    if not isinstance(body, list) or len(body) != 3:
        return "its body is not a list of arguments, keywords and links"
    if parse_arguments(body) is None:
        return "its arguments are not a session, a root and an address"
    if body[1] != {}:
        return "it has keyword arguments"
    return None if _links(body[2]) else "its links to other tasks are invalid"


def _links(embed: object) -> bool:
    """Whether the message's callbacks, chain and chord are valid."""
    if not isinstance(embed, dict) or not set(embed) <= _LINKS:
        return embed is None
    chain, chord = embed.get("chain"), embed.get("chord")
    return (
        not embed.get("callbacks")
        and not embed.get("errbacks")
        and (chain is None or (isinstance(chain, list) and all(map(_signature, chain))))
        and (chord is None or _signature(chord))
    )


def _signature(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("task"), str)


def _printable(raw: bytes | str) -> str:
    """The start of a text in printable ASCII."""
    text = raw.decode("latin-1") if isinstance(raw, bytes) else raw
    return json.dumps(text[:EXCERPT])[1 : EXCERPT + 1]


def _absent(value: object) -> bool:
    return value is None


def _text(value: object) -> bool:
    return isinstance(value, str)


def _text_or_absent(value: object) -> bool:
    return isinstance(value, str | None)


def _count_or_absent(value: object) -> bool:
    return value is None or (type(value) is int and value >= 0)


def _no_limits(value: object) -> bool:
    return value is None or value == [None, None]


#: The headers of a task that Celery reads. Hints have no time limits and none is for later.
_HEADERS: Mapping[str, Callable[[object], bool]] = {
    "id": _text,
    "lang": _text_or_absent,
    "shadow": _text_or_absent,
    "eta": _absent,
    "expires": _absent,
    "group": _text_or_absent,
    "group_index": _count_or_absent,
    "retries": _count_or_absent,
    "timelimit": _no_limits,
    "root_id": _text_or_absent,
    "parent_id": _text_or_absent,
    "argsrepr": _text_or_absent,
    "kwargsrepr": _text_or_absent,
    "origin": _text_or_absent,
    "ignore_result": lambda value: isinstance(value, bool | None),
    "replaced_task_nesting": _count_or_absent,
    "stamped_headers": lambda value: value in (None, []),
    "stamps": lambda value: value in (None, {}),
    "traceparent": _text_or_absent,
    "tracestate": _text_or_absent,
    "baggage": _text_or_absent,
}
_KEPT = {"task", *_HEADERS}
_LINKS = {"callbacks", "errbacks", "chain", "chord"}


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
        why = envelope_fault(reply[1], self)
        if why is not None:
            key = bytes_to_str(reply[0])
            drop(key.rpartition(self.sep)[0] or key, why, reply[1])
            return None
        return tuple(reply)

    def _handle_message(self, client: Any, reply: Any) -> Any:
        """Receive a broadcast, such as a remote control command; drops malformed data."""
        message = super()._handle_message(client, reply)  # type: ignore[misc]
        if message["data"] and bytes_to_str(message["type"]).endswith("message"):
            exchange = bytes_to_str(message["channel"])
            why = broadcast_fault(message["data"], exchange, self)
            if why is not None:
                drop(exchange, why, message["data"])
                return {**message, "data": b""}
        return message


class HintTransport(Transport):
    """The transport of `redis://` URLs."""

    Channel = HintChannel


def install() -> None:
    """Register Leadhand's kombu transport for all Redis broker URLs of this process."""
    for scheme in ("redis", "rediss"):
        TRANSPORT_ALIASES[scheme] = f"{__name__}:{HintTransport.__name__}"
