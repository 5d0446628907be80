"""Finds and drops stale messages in the broker's queues: those for deleted sessions."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from app.core.addresses import SessionRef
from app.core.records import QueueDepth
from tasks.celery_app import PRIORITIES
from tasks.transport import QUEUES, parse_arguments

#: Messages per read, and maximum messages that are read of a list.
BATCH, MOST = 200, 10_000

#: Takes a queue and the sessions with messages in it; returns those that do not use it.
Gone = Callable[[str, Sequence[str]], set[str]]


#: Prefix of the names of Leadhand's tasks; other applications may share the broker.
TASK_PREFIX = "leadhand."


class Message(NamedTuple):
    """A hint for a step, as read from a queue."""

    id: str
    task: str
    ref: SessionRef
    address: str


def parse_message(raw: bytes | str) -> Message | None:
    """Parses a queued message to its id, task, session and step address; None for any other."""
    try:
        envelope = json.loads(raw)
        headers = envelope["headers"]
        if not headers["task"].startswith(TASK_PREFIX):
            return None
        arguments = parse_arguments(json.loads(base64.b64decode(envelope["body"])))
        if arguments is None:
            return None
        session, root, address = arguments
        return Message(str(headers["id"]), headers["task"], SessionRef(session, root), address)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, binascii.Error):
        return None


def scan_queues(channel: Any, gone: Gone, *, drop: bool) -> Iterator[QueueDepth]:
    """Yields each queue's message counts, of all and of deleted sessions; `drop` removes these.

    Works with Redis only: other brokers cannot list a queue's messages.
    """
    if not hasattr(channel, "_q_for_pri"):
        return
    for queue in _queues(channel):
        depth = strays = 0
        for priority in PRIORITIES:
            name = channel._q_for_pri(queue, priority)
            total, lost = _count_stale(channel.client, name, partial(gone, queue), drop=drop)
            depth, strays = depth + total, strays + lost
        if depth:
            yield QueueDepth(queue, depth, strays)


def _queues(channel: Any) -> list[str]:
    """All declared task queues; see `QUEUES`."""
    return sorted(map(_text, channel.client.smembers(QUEUES)))


def _count_stale(
    client: Any, name: str, gone: Callable[[Sequence[str]], set[str]], *, drop: bool
) -> tuple[int, int]:
    total = lost = start = 0
    while start < MOST:
        rows = client.lrange(name, start, start + BATCH - 1)
        if not rows:
            break
        hints = [(row, message.ref.id) for row in rows if (message := parse_message(row))]
        stale = gone(sorted({session for _, session in hints}))
        strays = [row for row, session in hints if session in stale]
        dropped = sum(int(client.lrem(name, 1, row)) for row in strays) if drop else 0
        total, lost, start = total + len(hints), lost + len(strays), start + len(rows) - dropped
    return total, lost


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
