"""Sends task events for Flower in batches, and only while a program receives them.

Celery flushes its buffer in each turn of its event loop, which for short tasks is a broker call per
event. That took a third of the time of a worker's parent; building events that no program receives
took a quarter.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from celery.worker.consumer import Consumer

from tasks import transport
from tasks.publisher import LISTENERS

log = logging.getLogger(__name__)

#: Seconds that an event may wait for others, and the batch size that is sent without a wait.
#: Celery's batch is 24, which a busy worker fills every hundredth of a second.
WAIT_S = 0.1
MOST = 100


class _WantedGroups(set[str]):
    """The groups of events that a dispatcher sends: those of tasks only if a program listens.

    Remote control removes the group of tasks, and adds it again.
    """

    def __contains__(self, group: object) -> bool:
        return super().__contains__(group) and (group != "task" or LISTENERS.are_there)


class BatchingConsumer(Consumer):
    """Celery's consumer, except that it sends events in batches and drops malformed messages."""

    hub: Any
    event_dispatcher: Any
    strategies: Any
    connection_errors: tuple[type[BaseException], ...]
    _is_scheduled = False

    def create_task_handler(self, *args: Any, **kwargs: Any) -> Callable[[Any], None]:
        """Return Celery's message handler, wrapped to drop malformed task messages."""
        self.event_dispatcher.groups = _WantedGroups({"worker", "task"})
        handle = super().create_task_handler(*args, **kwargs)

        def receive(message: Any) -> None:
            why = transport.task_fault(message, self.strategies)
            if why is None:
                handle(message)
                return
            transport.drop(_queue_of(message), why, message.body)
            message.ack_log_error(log, self.connection_errors)

        return receive

    def on_decode_error(self, message: Any, exc: Exception) -> None:
        """Log, drop and acknowledge a message whose body cannot be decoded."""
        why = f"its body cannot be decoded ({type(exc).__name__})"
        transport.drop(_queue_of(message), why, message.body)
        message.ack_log_error(log, self.connection_errors)

    def on_send_event_buffered(self) -> None:  # type: ignore[override]  # its stubs say a callable
        """Schedule the sending of buffered events, unless it is scheduled."""
        if self.hub and not self._is_scheduled:
            self._is_scheduled = True
            self.event_dispatcher.buffer_limit = MOST
            self.hub.call_later(WAIT_S, self._send_batch)

    def _send_batch(self) -> None:
        self._is_scheduled = False
        if self.event_dispatcher:
            self.event_dispatcher.flush()


def _queue_of(message: Any) -> str:
    return str((message.delivery_info or {}).get("routing_key"))
