"""A Celery result backend that stores nothing; the reply of settle decides about a chord's body.

Celery's own chord counts arrivals in Redis, and loses the body if a worker dies between the count
and the publish. Here the join is part of the session's state. The worker whose settle released the
body's step publishes it. If that worker dies first, the sweep finds the step ready.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.backends.base import BaseBackend

from tasks.canvas import body_of


class SettledBackend(BaseBackend):
    """A result backend without storage and counters."""

    app: Celery

    def apply_chord(self, *_: Any, **__: Any) -> None:
        """Do nothing: chords need no preparation here."""

    def on_chord_part_return(self, request: Any, *_: Any, **__: Any) -> None:
        """Publish a chord's body (the step that joins it) if this task made that step ready."""
        body = body_of(request, self.app)
        if body is not None:
            body.apply_async()

    def store_result(self, task_id: str, result: Any, state: str, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        """Store nothing and return the result unchanged: the outcome is already in the store."""
        return result

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """Return the state PENDING for every task, since results are not stored here."""
        return {"status": "PENDING", "result": None, "task_id": task_id}

    def process_cleanup(self) -> None:
        """Do nothing: there are no connections."""

    def ensure_chords_allowed(self) -> None:
        """Do nothing: this backend supports chords."""

    def as_uri(self, include_password: bool = False) -> str:  # noqa: ARG002
        """Return `settled://`, the name of this backend in Celery's start message."""
        return "settled://"
