"""Puts messages on a Redis broker's lists as kombu does, for a fifth of what kombu takes.

A step with its own message is one task sent, and Celery's way to send one takes longer than the
step's claim and settle together: half a millisecond, and again a third for the event that tells of
it. Here message and event are written in one go, over connections that are kept. What is written is
what kombu writes, and kombu reads it; where this cannot be done, kombu does it.
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
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import uuid4

from celery import Celery, signals
from celery.utils.nodenames import anon_nodename
from celery.utils.time import utcoffset
from pydantic import JsonValue

log = logging.getLogger(__name__)

#: Where Celery's events go, and what is told there of a message.
_EVENTS, _SENT = "celeryev", "task-sent"
_NOTHING: Mapping[str, JsonValue] = {}


class Letter(NamedTuple):
    """One message: a task, and the canvas that travels with it."""

    task: str
    arguments: Sequence[str]
    queue: str
    priority: int
    id: str
    #: What Celery would send next, the last one first, and what joins those of its group.
    chain: Sequence[Mapping[str, Any]] | None = None
    chord: Mapping[str, Any] | None = None
    group: str | None = None
    place: int | None = None


class _Told(NamedTuple):
    """Of whose doing a message is."""

    root: str | None
    parent: str | None


class Lists(NamedTuple):
    """How one process reaches the broker's lists."""

    pid: int
    pool: Any
    #: The list of a queue and priority, and where events are told.
    name: Callable[[str, int], str]
    events: str
    #: What kombu calls this process.
    origin: str
    #: What is raised for a command that the server does not take.
    refused: type[Exception]


#: Whether what is sent here is sent by no task, though Celery knows of one in this process.
_NO_TASK = ContextVar("no_task", default=False)


@contextmanager
def from_no_task() -> Iterator[None]:
    """What is sent within begins anew, instead of going on with Celery's own message."""
    token = _NO_TASK.set(True)
    try:
        yield
    finally:
        _NO_TASK.reset(token)


class Post:
    """Sends letters; safe to be used by many threads, and after a fork."""

    def __init__(self, celery: Celery) -> None:
        self._celery = celery
        self._clock: Any = celery.clock  # type: ignore[attr-defined]  # its stubs know none
        self._lists: Lists | None = None
        self._opening = threading.Lock()
        #: Queues that kombu has declared: the first message to each is its.
        self._declared: set[str] = set()

    def send(self, letters: Sequence[Letter]) -> None:
        """Send them all. Raises what kombu raises where the broker cannot be had."""
        told = self._told()
        known = [letter for letter in letters if letter.queue in self._declared]
        left = [letter for letter in letters if letter.queue not in self._declared]
        if known and not self._at_once(known, told):
            left = list(letters)
        for letter in left:
            self._by_kombu(letter, told)
            self._declared.add(letter.queue)

    def _at_once(self, letters: Sequence[Letter], told: _Told) -> bool:
        """Whether all of them were sent in one go."""
        if signals.before_task_publish.receivers or signals.after_task_publish.receivers:
            return False  # those who trace write into messages
        try:
            lists = self.lists()
            if lists is None:
                return False
            commands = [part for letter in letters for part in self._commands(lists, letter, told)]
            with connected(lists.pool) as connection:
                connection.send_packed_command(connection.pack_commands(commands))
                for _ in commands:
                    connection.read_response()
        except Exception as error:  # noqa: BLE001 - kombu tries again, and says what is wrong
            log.info("hints not sent at once", extra={"why": type(error).__name__})
            return False
        return True

    def _commands(
        self, lists: Lists, letter: Letter, told: _Told
    ) -> Iterator[tuple[str, str, str]]:
        key = lists.name(letter.queue, letter.priority)
        yield "LPUSH", key, _message(letter, told, lists.origin)
        if self._celery.conf.task_send_sent_event:
            yield "PUBLISH", lists.events, _event(letter, told, lists, self._clock.forward())

    def lists(self) -> Lists | None:
        """The broker's lists; None where the broker is no Redis, or has its own names for keys."""
        if self._lists is None or self._lists.pid != os.getpid():
            with self._opening, self._celery.connection_for_write() as connection:
                channel: Any = connection.default_channel
                if not hasattr(channel, "_q_for_pri") or channel.global_keyprefix:
                    return None
                pool = channel._get_pool()
                events = channel._get_publish_topic(_EVENTS, _SENT.replace("-", "."))
                name = channel._q_for_pri
                refused = channel.ResponseError
                self._lists = Lists(os.getpid(), pool, name, events, anon_nodename(), refused)
        return self._lists

    def _told(self) -> _Told:
        """What Celery tells of a message's origin: the task that sends it."""
        current = self._celery.current_worker_task
        if not current or _NO_TASK.get():
            return _Told(None, None)
        request = current.request
        return _Told(request.root_id or request.id, request.id)

    def _by_kombu(self, letter: Letter, told: _Told) -> None:
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
            root_id=told.root,
            parent_id=told.parent,
            ignore_result=True,
            create_sent_event=self._celery.conf.task_send_sent_event,
        )
        with self._celery.producer_or_acquire() as producer:
            amqp.send_task_message(
                producer, letter.task, message, queue=letter.queue, priority=letter.priority
            )


@lru_cache(maxsize=8)
def post_of(celery: Celery) -> Post:
    """The one post of an application: all who send for it share its connections."""
    return Post(celery)


@contextmanager
def connected(pool: Any) -> Iterator[Any]:
    """A kept connection of kombu's kind, which is cut where something goes wrong."""
    connection = pool.get_connection()
    try:
        yield connection
    except BaseException:
        connection.disconnect()  # an answer that nobody read must not be the next one's
        raise
    finally:
        pool.release(connection)


def new_id() -> str:
    """A name for a message, as Celery gives them."""
    return str(uuid4())


def _message(letter: Letter, told: _Told, origin: str) -> str:
    """A task of protocol 2 in kombu's envelope."""
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
        "root_id": told.root or letter.id,
        "parent_id": told.parent,
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


def _event(letter: Letter, told: _Told, lists: Lists, clock: int) -> str:
    """What Celery tells of a message that was sent."""
    event = {
        "type": _SENT,
        "uuid": letter.id,
        "root_id": told.root or letter.id,
        "parent_id": told.parent,
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
    """A message as kombu's Redis transport writes it."""
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
