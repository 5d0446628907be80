"""Reports which queues a worker consumes now: remote control and a lost broker change that."""

from __future__ import annotations

from typing import Any


class ConsumedQueues:
    """Reads the queues from Celery's consumer; safe to call from any thread."""

    def __init__(self) -> None:
        self._consumer: Any = None

    def watch(self, consumer: object) -> None:
        """Set the Celery consumer whose queues `queues` returns from now on."""
        self._consumer = consumer

    def queues(self) -> tuple[str, ...] | None:
        """Return the queues that this worker consumes now, sorted; empty if disconnected.

        Empty while the worker shuts down or has no connection to the broker; None before start.
        """
        if self._consumer is None:
            return None
        tasks = self._consumer.task_consumer  # None between two connections
        if tasks is None or self._consumer.controller.blueprint.state != _RUN:
            return ()
        return tuple(sorted(q.name for q in list(tasks.queues) if tasks.consuming_from(q.name)))


#: Celery's blueprint state of a worker that neither starts nor shuts down.
_RUN = 1
