"""Ports (Protocols) that the engine needs from its transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from app.domain.ids import SessionRef
from app.domain.program import Program
from app.domain.records import Hint


class Carrier(Protocol):
    """Sends hints to workers. Hints may get lost; the sweep repeats them."""

    def publish(self, ref: SessionRef, program: Program, hints: Sequence[Hint]) -> None:
        """Send a message to a queue for each ready step."""

    def publish_all(self, batch: Sequence[tuple[SessionRef, Program, Sequence[Hint]]]) -> None:
        """Send a message for each ready step of several sessions, in one batch."""

    def depths(self, queues: Sequence[str]) -> Mapping[str, int]:
        """Return the number of messages in each queue."""

    def strays(
        self, gone: Callable[[str, Sequence[str]], set[str]], *, drop: bool
    ) -> Sequence[QueueDepth]:
        """Count messages per queue, and those of deleted sessions (`drop` removes); [] if away.

        `gone` takes a queue and the sessions that have messages in it, and returns the deleted
        ones. Their messages are the stray ones.
        """


class QueueDepth(NamedTuple):
    """A queue of the broker: its length, and how many of its messages are stray."""

    name: str
    depth: int
    #: Messages for sessions that were deleted.
    strays: int
