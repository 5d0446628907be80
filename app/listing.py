"""Goes through the sessions, the newest first, and keeps those that are meant."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from pydantic import JsonValue

from app.cursors import encoded, not_ours, place_of
from app.filters import SessionFilter
from app.keys import SessionRef
from app.states import SessionStatus
from app.store import Store
from app.views import Page, SessionView

#: How many sessions one page looks at; with more to come it may hold fewer than were asked for.
LOOKED_AT = 2000
#: How many are read in one go.
BATCH = 100
_FAR = 9e15
_DERIVED = frozenset({"active", "waiting"})


class Place(NamedTuple):
    """Where a session stands in the order of creation; those of one ms stand by their ids."""

    at: float
    session: str


class Found(NamedTuple):
    """A session that was looked at; it is meant if it has fields."""

    place: Place
    ref: SessionRef | None = None
    fields: Mapping[str, str] = {}


class Looked(NamedTuple):
    """A session that was looked at, and what a cursor to those behind it is made of."""

    place: JsonValue
    #: None where it is not meant.
    ref: SessionRef | None


class Listing:
    """The index of one store."""

    def __init__(
        self,
        store: Store,
        *,
        status_of: Callable[[SessionRef, Mapping[str, str]], str],
        view_of: Callable[[SessionRef, Mapping[str, str]], SessionView],
    ) -> None:
        self._store = store
        self._status_of = status_of
        self._view_of = view_of

    def page(self, wanted: SessionFilter, *, limit: int, cursor: str | None) -> Page[SessionView]:
        """Some of those that are meant; a page may be short, `next` says whether more come."""
        items: list[SessionView] = []
        last: Place | None = None
        for found in islice(self._looked_at(wanted, _start(wanted, cursor)), LOOKED_AT):
            last = found.place
            if found.ref is not None:
                items.append(self._view_of(found.ref, found.fields))
                if len(items) == limit:
                    break
        else:
            last = last if self._goes_on(wanted, last) else None
        return Page(items=items, next=encoded(list(last)) if last else None)

    def walk(self, wanted: SessionFilter, cursor: str | None) -> Iterator[Looked]:
        """Every session from there on that is looked at: those that are meant, and the others."""
        for found in self._looked_at(wanted, _start(wanted, cursor)):
            yield Looked(list(found.place), found.ref)

    def _goes_on(self, wanted: SessionFilter, last: Place | None) -> bool:
        return last is not None and next(self._places(wanted, last), None) is not None

    def _looked_at(self, wanted: SessionFilter, before: Place) -> Iterator[Found]:
        places = self._places(wanted, before)
        while batch := list(islice(places, BATCH)):
            known = self._store.fields_of([place.session for place in batch])
            for place in batch:
                if place.session not in known:
                    self._store.unlist(place.session)
                    continue
                ref, fields = known[place.session]
                meant = wanted.fits(fields) and self._has_status(wanted, ref, fields)
                yield Found(place, ref, fields) if meant else Found(place)

    def _has_status(
        self, wanted: SessionFilter, ref: SessionRef, fields: Mapping[str, str]
    ) -> bool:
        if not wanted.status:
            return True
        if fields["status"] != SessionStatus.ACTIVE:
            return fields["status"] in wanted.status
        # Only of active ones it takes a look to tell whether they wait.
        return set(wanted.status) >= _DERIVED or self._status_of(ref, fields) in wanted.status

    def _places(self, wanted: SessionFilter, before: Place) -> Iterator[Place]:
        """Where to look, the newest first."""
        kept = {SessionStatus.ACTIVE if word == "waiting" else word for word in wanted.status}
        walks = [self._walk(status, before) for status in sorted(kept)]
        merged = heapq.merge(*walks, reverse=True) if walks else self._walk(None, before)
        for place in merged:
            if place.at < wanted.first_ms:
                return
            yield place

    def _walk(self, status: str | None, before: Place) -> Iterator[Place]:
        while found := self._store.index(status, before=before, limit=BATCH):
            for session, at in found:
                before = Place(at, session)
                yield before


def _start(wanted: SessionFilter, cursor: str | None) -> Place:
    """Before which place the list begins."""
    end = Place(_FAR if wanted.end_ms is None else float(wanted.end_ms), "")
    return end if cursor is None else min(end, _decoded(cursor))


def _decoded(cursor: str) -> Place:
    match place_of(cursor):
        case [int() | float() as at, str() as session] if 0 <= at <= _FAR:
            return Place(float(at), session)
        case _:
            raise not_ours(cursor)
