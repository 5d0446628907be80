"""Lists sessions that match a filter, newest first, in pages."""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice, takewhile
from typing import NamedTuple

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.states import SessionStatus
from app.errors import InvalidDocument
from app.store.session_reads import Period, Place, folder_fact
from app.store.store import Store
from leadhand.contract.sessions import SessionsWanted
from leadhand.errors import KeyDamaged
from leadhand.models.views.session import SessionView
from leadhand.models.views.view import Page

_MOST = 2**63
#: Maximum sessions that one page examines; a page may therefore be short.
LOOKED_AT = 2000
#: Sessions per read.
BATCH = 100
_FAR = 9e15
#: Where a list of the newest sessions starts.
END = Place(_FAR, "")
#: A session and its record.
Found = tuple[SessionRef, Mapping[str, str]]
_DERIVED = frozenset({"active", "waiting"})


def encode_cursor(place: JsonValue) -> str:
    """Encodes a position in a list as a cursor for the next page.

    >>> decode_cursor(encode_cursor([1700000000000.0, "0000000a"]))
    [1700000000000.0, '0000000a']
    """
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode()


def decode_cursor(cursor: str) -> JsonValue:
    """Decodes a cursor to a position. Raises InvalidDocument for any other text."""
    try:
        place: JsonValue = json.loads(base64.b64decode(cursor, altchars=b"-_", validate=True))
    except (ValueError, RecursionError):
        raise invalid_cursor(cursor) from None
    return place


def number_of(cursor: str | None) -> int:
    """Decodes a page cursor to the number in it; 0 without a cursor. Raises InvalidDocument."""
    place = 0 if cursor is None else decode_cursor(cursor)
    if isinstance(place, bool) or not isinstance(place, int) or not 0 <= place < _MOST:
        raise invalid_cursor(str(cursor))
    return place


def address_of(cursor: str) -> str:
    """Decodes a page cursor to the text in it, such as a step's address. Raises InvalidDocument."""
    place = decode_cursor(cursor)
    if not isinstance(place, str):
        raise invalid_cursor(cursor)
    return place


def invalid_cursor(cursor: str) -> InvalidDocument:
    """Returns (does not raise) the InvalidDocument error for an invalid page cursor."""
    return InvalidDocument("cursor", cursor, "use the `next` of the page before")


class Examined(NamedTuple):
    """An examined session; it has fields if it matches."""

    place: Place
    ref: SessionRef | None = None
    fields: Mapping[str, str] = {}
    #: Whether it may match, but cannot be read.
    damaged: bool = False


class Visited(NamedTuple):
    """An examined session, and the position for a cursor."""

    place: JsonValue
    #: None if it does not match.
    ref: SessionRef | None
    fields: Mapping[str, str] = {}


class Listing:
    """Reads the indexes of one store."""

    def __init__(
        self,
        store: Store,
        *,
        status_of: Callable[[SessionRef, Mapping[str, str]], str],
        views_of: Callable[[Sequence[Found], list[Found]], list[SessionView]],
    ) -> None:
        self._store = store
        self._index = store.session_index()
        self._status_of = status_of
        self._views_of = views_of

    def page(self, wanted: SessionsWanted, *, limit: int, cursor: str | None) -> Page[SessionView]:
        """Returns a page of sessions that match a filter, newest first; `next` if more may follow.

        The page is `partial` if it examined LOOKED_AT sessions before it was full.
        """
        chosen: list[Found] = []
        damaged: list[str] = []
        last: Place | None = None
        partial, examined = False, 0
        for found in islice(self._examine(wanted, _start(wanted, cursor)), LOOKED_AT):
            last = found.place
            examined += 1
            if found.damaged:
                damaged.append(found.place.session)
            if found.ref is not None:
                chosen.append((found.ref, found.fields))
                if len(chosen) == limit:
                    break
        else:
            last = last if self._has_more(wanted, last) else None
            partial = last is not None
        following = encode_cursor(list(last)) if last else None
        unreadable: list[Found] = []
        items = self._views_of(chosen, unreadable)
        return Page(
            items=items,
            next=following,
            partial=partial,
            examined=examined,
            damaged=[*damaged, *(ref.id for ref, _ in unreadable)],
        )

    def walk(self, wanted: SessionsWanted, cursor: str | None) -> Iterator[Visited]:
        """Yields each examined session after the cursor, newest first, and whether it matches."""
        for found in self._examine(wanted, _start(wanted, cursor)):
            yield Visited(list(found.place), found.ref, found.fields)

    def _has_more(self, wanted: SessionsWanted, last: Place | None) -> bool:
        return last is not None and next(self._places(wanted, last), None) is not None

    def _examine(self, wanted: SessionsWanted, before: Place) -> Iterator[Examined]:
        places = self._places(wanted, before)
        while batch := list(islice(places, BATCH)):
            damaged: list[str] = []
            known = self._store.fields_of([place.session for place in batch], damaged)
            for place in batch:
                if place.session in damaged:
                    yield Examined(place, damaged=True)
                    continue
                if place.session not in known:
                    self._index.unlist(place, facts_of(wanted))
                    continue
                ref, fields = known[place.session]
                try:
                    meant = matches(wanted, fields) and self._has_status(wanted, ref, fields)
                except KeyDamaged:
                    yield Examined(place, damaged=True)
                else:
                    yield Examined(place, ref, fields) if meant else Examined(place)

    def _has_status(
        self, wanted: SessionsWanted, ref: SessionRef, fields: Mapping[str, str]
    ) -> bool:
        if not wanted.status:
            return True
        if fields["status"] != SessionStatus.ACTIVE:
            return fields["status"] in wanted.status
        # Whether an active session waits is derived from its steps.
        return set(wanted.status) >= _DERIVED or self._status_of(ref, fields) in wanted.status

    def _places(self, wanted: SessionsWanted, before: Place) -> Iterator[Place]:
        """Yields the positions of all sessions that may match, newest first."""
        places = self._smallest(wanted, before)
        return takewhile(lambda place: place.at >= first_ms(wanted), places)

    def _smallest(self, wanted: SessionsWanted, before: Place) -> Iterator[Place]:
        """The index with the fewest sessions in the period of the filter, or a merge of such."""
        stored = {SessionStatus.ACTIVE if word == "waiting" else word for word in wanted.status}
        statuses, facts = sorted(stored), facts_of(wanted)
        if facts:
            period = Period(first_ms(wanted), before)
            sizes = self._index.sizes(period, statuses=statuses, facts=facts)
            others = sizes.statuses if statuses else sizes.sessions
            fact = min(facts, key=sizes.facts.__getitem__)
            if sizes.facts[fact] <= others:
                return self._index.walk_fact(fact, facts[fact], before)
        walks = [self._index.walk(status, before) for status in statuses]
        return heapq.merge(*walks, reverse=True) if walks else self._index.walk(None, before)


def _start(wanted: SessionsWanted, cursor: str | None) -> Place:
    """The position before which the list starts."""
    last_ms = end_ms(wanted)
    end = Place(_FAR if last_ms is None else float(last_ms), "")
    return end if cursor is None else min(end, decode_place(cursor))


def decode_place(cursor: str) -> Place:
    """Decodes a cursor to a time and a session id. Raises InvalidDocument for any other text."""
    match decode_cursor(cursor):
        case [int() | float() as at, str() as session] if 0 <= at <= _FAR:
            return Place(float(at), session)
        case _:
            raise invalid_cursor(cursor)


def facts_of(wanted: SessionsWanted) -> dict[str, str]:
    """Returns the filter's set values of kind, label, name and folder, for an index lookup."""
    folder = None if wanted.folder is None else folder_fact(wanted.folder)
    given = {"kind": wanted.kind, "label": wanted.label, "name": wanted.name, "folder": folder}
    return {name: value for name, value in given.items() if value is not None}


def matches(wanted: SessionsWanted, fields: Mapping[str, str]) -> bool:
    """Whether a session's fields match; the caller checks its status and creation time."""
    archived = wanted.archived == "any" or (wanted.archived == "only") == ("archived" in fields)
    return (
        archived
        and wanted.kind in (None, fields.get("kind"))
        and wanted.name in (None, fields.get("name"))
        and wanted.label in (None, fields.get("label"))
        and (wanted.folder is None or _is_in(fields.get("listed_in", ""), wanted.folder))
        and (wanted.reason is None or wanted.reason == _within(fields.get("reason"), "code"))
        and (wanted.parent is None or wanted.parent == _within(fields.get("parent"), "session"))
    )


def first_ms(wanted: SessionsWanted) -> int:
    """Returns the earliest creation time that the filter allows, in epoch ms; 0 without one."""
    return _ms(wanted.created_after) if wanted.created_after else 0


def end_ms(wanted: SessionsWanted) -> int | None:
    """Returns the epoch ms before which a session must be created; None without an end."""
    return _ms(wanted.created_before) if wanted.created_before else None


def _is_in(path: str, folder: str) -> bool:
    """Whether a path is the folder or beneath it.

    >>> _is_in("/a/b", "/a"), _is_in("/a", "/a"), _is_in("/ab", "/a"), _is_in("/a", "/")
    (True, True, False, True)
    """
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _within(text: str | None, name: str) -> str | None:
    return json.loads(text).get(name) if text else None


def _ms(at: datetime) -> int:
    """Rounds a time up to whole ms."""
    return -int(-at.timestamp() * 1000 // 1)
