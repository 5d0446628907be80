"""Publishes messages to a Redis broker in kombu's format, at a fifth of kombu's cost.

Celery takes longer to send a task than a step's claim and settle take together: half a millisecond,
and again a third for the task-sent event. Here message and event are sent in one write over pooled
connections, in the same format, and the event only if a program receives events. If this is not
possible, kombu sends them.

Redis replies to PUBLISH with the number of receivers. After a task event without any, a process
sends no further ones for a second. So a program that begins to listen, such as Flower, misses the
task events of up to one second.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

from celery import Celery, signals
from celery.utils.nodenames import anon_nodename
from celery.utils.time import utcoffset
from pydantic import JsonValue

#: Seconds without task events after one that no program received.
QUIET_S = 1.0
log = logging.getLogger(__name__)
#: The exchange of Celery's events, and the type of the event of a sent message.
_EVENTS, _SENT = "celeryev", "task-sent"
#: A connection that was idle for longer is tested before it is used.
TRUSTED_S = 10.0
_NOTHING: Mapping[str, JsonValue] = {}


class EventListeners:
    """What a process knows of the receivers of task events."""

    def __init__(self) -> None:
        #: On the monotonic clock.
        self._quiet_until = 0.0

    @property
    def are_there(self) -> bool:
        """Whether to send a task event: False for QUIET_S after one reached no receiver."""
        return time.monotonic() >= self._quiet_until

    def note(self, receivers: int) -> None:
        """Record how many programs received a task event; with none, events pause for QUIET_S."""
        self._quiet_until = 0.0 if receivers else time.monotonic() + QUIET_S


#: What the transport of this process has seen.
LISTENERS = EventListeners()


class Letter(NamedTuple):
    """One message: a task, and the rest of its canvas."""

    task: str
    arguments: Sequence[str]
    queue: str
    priority: int
    id: str
    #: The following tasks in Celery's order (last one first), and the chord body of its group.
    chain: Sequence[Mapping[str, Any]] | None = None
    chord: Mapping[str, Any] | None = None
    group: str | None = None
    place: int | None = None


class _Sender(NamedTuple):
    """The task that sends a message, and the root of its tree."""

    root: str | None
    parent: str | None


class Lists(NamedTuple):
    """A process' access to the broker's lists."""

    pid: int
    pool: Any
    #: Returns the list of a queue and priority; the channel of events.
    name: Callable[[str, int], str]
    events: str
    #: kombu's name for this process.
    origin: str


class KeptConnection:
    """Keeps one connection of a pool, which is faster to take than the pool's own are.

    A pool tests each connection that it gives. An error of a kept one shows when it is used; kombu
    sends the messages then. Threads that find it in use take others from the pool.
    """

    def __init__(self) -> None:
        #: At most one: the pool and the process that opened it, the time since which it is idle.
        self._idle: list[tuple[Any, int, float, Any]] = []

    @contextmanager
    def of(self, pool: Any) -> Iterator[Any]:
        """Lends a pool's connection to a block, if possible a kept one; disconnects on error."""
        connection = self._take(pool) or pool.get_connection()
        try:
            yield connection
        except BaseException:
            connection.disconnect()  # an unread reply must not be taken for that of the next one
            pool.release(connection)
            raise
        if self._idle:
            pool.release(connection)
        else:
            self._idle.append((pool, os.getpid(), time.monotonic(), connection))

    def _take(self, pool: Any) -> Any:
        """The kept connection; None if there is none, or it is in use or untrusted."""
        try:
            owner, pid, since, connection = self._idle.pop()
        except IndexError:
            return None
        if pid != os.getpid() or owner is not pool:
            return None
        if time.monotonic() - since > TRUSTED_S:  # it may be half-open
            pool.release(connection)
            return None
        return connection


class Publisher:
    """Sends messages; safe for threads and after a fork."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._clock: Any = celery.clock  # type: ignore[attr-defined]  # its stubs know none
        self._listeners = EventListeners()
        self._lists: Lists | None = None
        self._opening = threading.Lock()
        self._kept = KeptConnection()
        #: Queues that kombu has declared; it sends the first message to each.
        self._declared: set[str] = set()

    def send(self, letters: Sequence[Letter]) -> None:
        """Send all messages. Raises kombu's errors if the broker is unreachable."""
        sender = self._current_origin()
        known = [letter for letter in letters if letter.queue in self._declared]
        left = [letter for letter in letters if letter.queue not in self._declared]
        if known and not self._at_once(known, sender):
            left = list(letters)
        for letter in left:
            self._by_kombu(letter, sender)
            self._declared.add(letter.queue)

    def _at_once(self, letters: Sequence[Letter], sender: _Sender) -> bool:
        """Send all messages in one write; returns whether that worked."""
        if signals.before_task_publish.receivers or signals.after_task_publish.receivers:
            return False  # tracing modifies messages in these signals
        try:
            lists = self._open_lists()
            if lists is None:
                return False
            commands = [
                part for letter in letters for part in self._commands(lists, letter, sender)
            ]
            with self._kept.of(lists.pool) as connection:
                connection.send_packed_command(connection.pack_commands(commands))
                for verb, *_ in commands:
                    reply = connection.read_response()
                    if verb == "PUBLISH":
                        self._listeners.note(reply)
        except Exception as error:  # noqa: BLE001 - kombu retries and reports it
            log.info("hints not sent at once", extra={"why": type(error).__name__})
            return False
        return True

    def _commands(
        self, lists: Lists, letter: Letter, sender: _Sender
    ) -> Iterator[tuple[str, str, str]]:
        key = lists.name(letter.queue, letter.priority)
        yield "LPUSH", key, _message(letter, sender, lists.origin)
        if self._celery.conf.task_send_sent_event and self._listeners.are_there:
            yield "PUBLISH", lists.events, _event(letter, sender, lists, self._clock.forward())

    def _open_lists(self) -> Lists | None:
        """The broker's lists; None if the broker is not Redis, or has a key prefix."""
        if self._lists is None or self._lists.pid != os.getpid():
            with self._opening, self._celery.connection_for_write() as connection:
                channel: Any = connection.default_channel
                if not hasattr(channel, "_q_for_pri") or channel.global_keyprefix:
                    return None
                pool = channel._get_pool()
                events = channel._get_publish_topic(_EVENTS, _SENT.replace("-", "."))
                name = channel._q_for_pri
                self._lists = Lists(os.getpid(), pool, name, events, anon_nodename())
        return self._lists

    def _current_origin(self) -> _Sender:
        """The origin of messages from this thread: the current task, if any."""
        current = self._celery.current_worker_task
        if not current:
            return _Sender(None, None)
        request = current.request
        return _Sender(request.root_id or request.id, request.id)

    def _by_kombu(self, letter: Letter, sender: _Sender) -> None:
        amqp: Any = self._celery.amqp
        message = amqp.create_task_message(
            letter.id,
            letter.task,
            tuple(letter.arguments),
            {},
            chain=letter.chain,
            chord=letter.chord,
            group_id=letter.group,
            group_index=letter.place,
            root_id=sender.root,
            parent_id=sender.parent,
            ignore_result=True,
            create_sent_event=self._celery.conf.task_send_sent_event,
        )
        with self._celery.producer_or_acquire() as producer:
            amqp.send_task_message(
                producer, letter.task, message, queue=letter.queue, priority=letter.priority
            )


@lru_cache(maxsize=8)
def publisher_of(celery: Celery) -> Publisher:
    """Returns the one publisher of a Celery application, created on first use."""
    return Publisher(celery)


def new_id() -> str:
    """Returns a new message id in Celery's format."""
    return str(uuid4())


def _message(letter: Letter, sender: _Sender, origin: str) -> str:
    """A task message: Celery's protocol 2 in kombu's envelope."""
    embed = {"callbacks": None, "errbacks": None, "chain": letter.chain, "chord": letter.chord}
    headers: dict[str, Any] = {
        "lang": "py",
        "task": letter.task,
        "id": letter.id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": letter.group,
        "group_index": letter.place,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": sender.root or letter.id,
        "parent_id": sender.parent,
        "argsrepr": repr(tuple(letter.arguments)),
        "kwargsrepr": "{}",
        "origin": origin,
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    properties = {"correlation_id": letter.id, "reply_to": "", "priority": letter.priority}
    body = [letter.arguments, {}, embed]
    return _envelope(letter, body, headers, properties, exchange="", key=letter.queue)


def _event(letter: Letter, sender: _Sender, lists: Lists, clock: int) -> str:
    """Celery's task-sent event."""
    event = {
        "type": _SENT,
        "uuid": letter.id,
        "root_id": sender.root or letter.id,
        "parent_id": sender.parent,
        "name": letter.task,
        "args": repr(tuple(letter.arguments)),
        "kwargs": "{}",
        "retries": 0,
        "eta": None,
        "expires": None,
        "queue": letter.queue,
        "exchange": "",
        "routing_key": letter.queue,
        "hostname": lists.origin,
        "utcoffset": utcoffset(),
        "pid": lists.pid,
        "clock": clock,
        "timestamp": time.time(),
    }
    headers = {"hostname": lists.origin}
    key = _SENT.replace("-", ".")
    return _envelope(letter, event, headers, {"priority": 0}, exchange=_EVENTS, key=key, mode=1)


def _envelope(
    letter: Letter,
    body: object,
    headers: Mapping[str, Any],
    properties: Mapping[str, Any],
    *,
    exchange: str,
    key: str,
    mode: int = 2,
) -> str:
    """A message in the format of kombu's Redis transport."""
    return json.dumps(
        {
            "body": base64.b64encode(json.dumps(body).encode()).decode(),
            "content-encoding": "utf-8",
            "content-type": "application/json",
            "headers": headers,
            "properties": {
                **properties,
                "delivery_mode": mode,
                "delivery_info": {"exchange": exchange, "routing_key": key},
                "body_encoding": "base64",
                "delivery_tag": letter.id,
            },
        }
    )
