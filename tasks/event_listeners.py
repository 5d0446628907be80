"""Whether anyone receives Celery's task events: they are built and sent only then.

Redis replies to PUBLISH with the number of receivers. After a task event without any, a process
sends no further ones for a second. So a program that begins to listen, such as Flower, misses the
task events of up to one second.
"""

from __future__ import annotations

import time

#: Seconds without task events after one that no program received.
QUIET_S = 1.0


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
