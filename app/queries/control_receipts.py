"""Receipts of the last stop, exit or abort: the attempts that it ended, from the event stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.domain.clock import iso
from app.domain.ids import SessionRef
from app.domain.states import ENDED
from app.store.store import Store
from leadhand.errors import SessionUnknown
from leadhand.models.views.explain import Met, ReceiptView
from leadhand.models.views.step import Event

_VERBS = {"stopping": "stop", "exiting": "exit", "aborting": "abort"}
#: The events that end an attempt.
_ENDS = ("released", "settled", "cancelled", "expired", "retried", "parked")
_MANY = 1000


class Receipts:
    """Builds receipts. Raises SessionUnknown."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def receipt(self, session: str) -> ReceiptView:
        """Returns a session's last stop, exit or abort, and the attempts it ended in the tree."""
        ref = self._store.ref(session)
        fields = self._store.fields(ref) if ref else {}
        if ref is None or "status" not in fields:
            raise SessionUnknown(session)
        status = fields["status"]
        control = _last_control(self._events(ref), since_ms=0)
        if control is None:
            return ReceiptView(session=session, status=status)
        return ReceiptView(
            session=session,
            status=status,
            control=_VERBS[str(control.fields["status"])],
            asked_at=iso(control.at_ms),
            done=status in ENDED,
            items=[
                one
                for below in self._tree(ref)
                for one in affected_attempts(below.id, self._events(below), since_ms=control.at_ms)
            ],
        )

    def _tree(self, ref: SessionRef) -> Iterator[SessionRef]:
        yield ref
        for child in sorted(self._store.children(ref)):
            yield from self._tree(SessionRef(child, ref.root))

    def _events(self, ref: SessionRef) -> list[Event]:
        found: list[Event] = []
        while True:
            after = found[-1].id if found else "0-0"
            more = self._store.events({ref: after}, limit=_MANY, block_ms=0).get(ref, [])
            found += more
            if len(more) < _MANY:
                return found


def affected_attempts(session: str, events: Sequence[Event], *, since_ms: int) -> Iterator[Met]:
    """Yields, from a session's events, the attempts that a stop met, and how each ended."""
    control = _last_control(events, since_ms=since_ms)
    at = next((n for n, e in enumerate(events) if e is control or e.at_ms > since_ms), len(events))
    running: dict[str, str] = {}
    for event in events[:at]:
        if event.type == "step.claimed":
            running[str(event.address)] = str(event.fields.get("worker", ""))
        elif _end_of_attempt(event):
            running.pop(str(event.address), None)
    for event in events[at:]:
        if _end_of_attempt(event) and event.address in running:
            yield Met(
                session=session,
                address=event.address,
                worker=running.pop(event.address),
                became=_end_of_attempt(event),
                at=iso(event.at_ms),
            )
    for address, worker in running.items():
        yield Met(session=session, address=address, worker=worker, became="running")


def _end_of_attempt(event: Event) -> str:
    """The end of an attempt according to an event; empty for other events."""
    word = event.type.removeprefix("step.")
    return word if word in _ENDS else ""


def _last_control(events: Sequence[Event], *, since_ms: int) -> Event | None:
    """The last stop, exit or abort event."""
    for event in reversed(events):
        controls = event.type == "session.status" and event.fields.get("status") in _VERBS
        if controls and event.at_ms >= since_ms:
            return event
    return None
