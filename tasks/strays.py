"""Looks through the broker's queues for messages to sessions that are gone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from app.transitions import Standing
from tasks.celery_app import PRIORITIES
from tasks.messages import read

#: How many messages are read at once, and of one list at all.
BATCH, MOST = 200, 10_000

#: Of a queue and sessions with messages in it: those that will take none of them.
Gone = Callable[[str, Sequence[str]], set[str]]


def standing(channel: Any, gone: Gone, *, drop: bool) -> Iterator[Standing]:
    """Every queue with messages of ours, and how many are for nobody; those are dropped if asked.

    Works on Redis alone: no other broker lets one look into a queue.
    """
    if not hasattr(channel, "_q_for_pri"):
        return
    for queue in _queues(channel):
        depth = strays = 0
        for priority in PRIORITIES:
            name = channel._q_for_pri(queue, priority)
            ours, lost = _of(channel.client, name, partial(gone, queue), drop=drop)
            depth, strays = depth + ours, strays + lost
        if depth:
            yield Standing(queue, depth, strays)


def _queues(channel: Any) -> list[str]:
    """Queues that are bound to an exchange of their own name, as those of tasks are."""
    head, _, _ = channel.keyprefix_queue.partition("%s")
    found = set()
    for key in channel.client.scan_iter(match=f"{head}*", count=BATCH):
        exchange = _text(key)[len(head) :]
        for binding in channel.client.smembers(key):
            queue = _text(binding).split(channel.sep)[-1]
            if queue == exchange:
                found.add(queue)
    return sorted(found)


def _of(
    client: Any, name: str, gone: Callable[[Sequence[str]], set[str]], *, drop: bool
) -> tuple[int, int]:
    ours = lost = start = 0
    while start < MOST:
        rows = client.lrange(name, start, start + BATCH - 1)
        if not rows:
            break
        told = [(row, message.ref.id) for row in rows if (message := read(row))]
        nobody = gone(sorted({session for _, session in told}))
        strays = [row for row, session in told if session in nobody]
        dropped = sum(int(client.lrem(name, 1, row)) for row in strays) if drop else 0
        ours, lost, start = ours + len(told), lost + len(strays), start + len(rows) - dropped
    return ours, lost


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
