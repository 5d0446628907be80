"""What the last stop, exit or abort of a session met, in its whole tree: read from the events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from app.errors import SessionUnknown
from app.keys import SessionRef
from app.pictures import iso
from app.states import ENDED
from app.store import Store
from app.views import Event, Met, ReceiptView

_VERBS = {"stopping": "stop", "exiting": "exit", "aborting": "abort"}
#: What an attempt may come to, by the event that says so.
_ENDS = ("released", "settled", "cancelled", "expired", "retried", "parked")
_MANY = 1000


class Receipts:
    """The read side of controls. Raises SessionUnknown for ids that are not there."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def receipt(self, session: str) -> ReceiptView:
        """Which attempts ran when the session was last told to end, and what became of each."""
        ref = self._store.ref(session)
        fields = self._store.fields(ref) if ref else {}
        if ref is None or "status" not in fields:
            raise SessionUnknown(session)
        status = fields["status"]
        asked = _asked(self._events(ref), since_ms=0)
        if asked is None:
            return ReceiptView(session=session, status=status)
        return ReceiptView(
            session=session,
            status=status,
            control=_VERBS[str(asked.fields["status"])],
            asked_at=iso(asked.at_ms),
            done=status in ENDED,
            items=[
                one
                for below in self._tree(ref)
                for one in met(below.id, self._events(below), since_ms=asked.at_ms)
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


def met(session: str, events: Sequence[Event], *, since_ms: int) -> Iterator[Met]:
    """The attempts of one session that ran when the control came to it, and what each came to."""
    asked = _asked(events, since_ms=since_ms)
    at = next((n for n, e in enumerate(events) if e is asked or e.at_ms > since_ms), len(events))
    running: dict[str, str] = {}
    for event in events[:at]:
        if event.type == "step.claimed":
            running[str(event.address)] = str(event.fields.get("worker", ""))
        elif _word(event):
            running.pop(str(event.address), None)
    for event in events[at:]:
        if _word(event) and event.address in running:
            yield Met(
                session=session,
                address=event.address,
                worker=running.pop(event.address),
                became=_word(event),
                at=iso(event.at_ms),
            )
    for address, worker in running.items():
        yield Met(session=session, address=address, worker=worker, became="running")


def _word(event: Event) -> str:
    """What an attempt came to; empty where the event says nothing of that."""
    word = event.type.removeprefix("step.")
    return word if word in _ENDS else ""


def _asked(events: Sequence[Event], *, since_ms: int) -> Event | None:
    """The last control that was to end it."""
    for event in reversed(events):
        controls = event.type == "session.status" and event.fields.get("status") in _VERBS
        if controls and event.at_ms >= since_ms:
            return event
    return None
