"""Task events for Flower, sent in batches: one publish a tenth of a second, not one or two a task.

Celery flushes what it has buffered in each turn of its loop, which for short tasks is a call to the
broker for each event. That took a third of the time of a worker's parent.
"""

from __future__ import annotations

from typing import Any

from celery.worker.consumer import Consumer

#: Seconds that an event may wait for others, and how many are sent at once in any case: Celery
#: would send 24, which a busy worker has every hundredth of a second.
WAIT_S = 0.1
MOST = 100


class BatchingConsumer(Consumer):
    """Celery's consumer, but for when it sends the events of tasks."""

    hub: Any
    event_dispatcher: Any
    _waits = False

    def on_send_event_buffered(self) -> None:  # type: ignore[override]  # its stubs say a callable
        """An event stands in the buffer."""
        if self.hub and not self._waits:
            self._waits = True
            self.event_dispatcher.buffer_limit = MOST
            self.hub.call_later(WAIT_S, self._send_batch)

    def _send_batch(self) -> None:
        self._waits = False
        if self.event_dispatcher:
            self.event_dispatcher.flush()
