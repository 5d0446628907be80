"""Names the tasks that Celery knows; their one body is bound by the worker at boot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from celery import Celery, Task
from celery.exceptions import Ignore

from app.keys import SessionRef
from app.program import Action
from app.records import Hint
from tasks import canvas


class Carry(Protocol):
    """Makes the attempt at a step, and all that it may go on with by itself."""

    def __call__(self, ref: SessionRef, address: str) -> Sequence[Hint] | None:
        """What became ready elsewhere, or None where the step was not to be had."""

    def publish(self, ref: SessionRef, hints: Sequence[Hint]) -> None:
        """Tell workers of ready steps."""


class Bound:
    """The one piece of state that tasks have: what carries out their steps in this process."""

    carry: Carry | None = None


BOUND = Bound()


def register(celery: Celery) -> None:
    """Give Celery a task for each action, by the name that Flower shows."""
    for action in Action:
        celery.task(bind=True, name=f"leadhand.{action.value}", shared=False)(step)


def step(self: Task[..., None], session: str, root: str, address: str) -> None:
    """One hint: try for the step, and let the message travel on as far as settle answered."""
    assert BOUND.carry is not None
    ref = SessionRef(session, root)
    hints = BOUND.carry(ref, address)
    if hints is None:
        raise Ignore
    _go_on(self.request, self.app, ref, hints, BOUND.carry)


def _go_on(
    request: Any, celery: Celery, ref: SessionRef, hints: Sequence[Hint], carry: Carry
) -> None:
    onward = canvas.travels(request, celery, hints)
    canvas.remember(request, hints)
    canvas.go_on(ref, celery, onward.letters)
    carry.publish(ref, onward.rest)
