"""A result backend that keeps nothing: whether a chord's body travels is what settle answered.

Celery's own chord counts arrivals in Redis and loses the body when a worker dies between the count
and the publish. Here the join is kept where the state is; the one worker whose settle released the
body's step publishes it, and if it dies first, the sweep finds that step ready.
"""

from __future__ import annotations

from typing import Any

from celery import Celery
from celery.backends.base import BaseBackend

from tasks.canvas import body_of


class SettledBackend(BaseBackend):
    """Stores nothing and counts nothing."""

    app: Celery

    def apply_chord(self, *_: Any, **__: Any) -> None:
        """A chord needs no preparation."""

    def on_chord_part_return(self, request: Any, *_: Any, **__: Any) -> None:
        """Publish the body where this very settle released its step."""
        body = body_of(request, self.app)
        if body is not None:
            body.apply_async()

    def store_result(self, task_id: str, result: Any, state: str, *_: Any, **__: Any) -> Any:  # noqa: ARG002
        """Nobody asks Celery what came of a step."""
        return result

    def get_task_meta(self, task_id: str, cache: bool = True) -> dict[str, Any]:  # noqa: ARG002
        """What Celery calls a task that it knows nothing of."""
        return {"status": "PENDING", "result": None, "task_id": task_id}

    def process_cleanup(self) -> None:
        """Nothing is held."""

    def ensure_chords_allowed(self) -> None:
        """They are: see above."""

    def as_uri(self, include_password: bool = False) -> str:  # noqa: ARG002
        """How Celery's banner shows this backend."""
        return "settled://"
