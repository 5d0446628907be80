"""The Celery tasks, one per action; the worker binds their common body at boot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from celery import Celery, Task
from celery.exceptions import Ignore

from app.core.addresses import SessionRef
from app.core.program import Action
from app.core.records import Hint
from tasks import canvas


class Carry(Protocol):
    """Carries out a step, and the steps that this worker may continue with."""

    def __call__(self, ref: SessionRef, address: str) -> Sequence[Hint] | None:
        """Returns the hints to publish, or None if the claim was refused."""

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Send messages for ready steps to their queues."""


class Bound:
    """Process-wide state of the tasks: the function that carries out steps."""

    carry: Carry | None = None


BOUND = Bound()


def register(celery: Celery) -> None:
    """Register the Celery task `leadhand.<action>` for each kind of step."""
    for action in Action:
        celery.task(bind=True, name=f"leadhand.{action.value}", shared=False)(step)


def step(self: Task[..., None], session: str, root: str, address: str) -> None:
    """Run a step as a Celery task, then send the rest of its chain. Raises Ignore if refused."""
    assert BOUND.carry is not None
    ref = SessionRef(session, root)
    hints = BOUND.carry(ref, address)
    if hints is None:
        raise Ignore
    _send_on(self.request, self.app, ref, hints, BOUND.carry)


def _send_on(
    request: Any, celery: Celery, ref: SessionRef, hints: Sequence[Hint], carry: Carry
) -> None:
    onward = canvas.split_canvas(request, celery, hints)
    canvas.remember(request, hints)
    canvas.send_on(ref, celery, onward.letters)
    carry.publish(ref, onward.rest)
