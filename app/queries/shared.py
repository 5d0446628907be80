"""Reads what a tree of sessions shares: its named locks and its values."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from app.domain.clock import iso
from app.domain.ids import SessionRef
from app.domain.records import Reply
from app.domain.shared import (
    LAPSE_MS,
    LockOwner,
    LockRecord,
    StoredValue,
    check_name,
    find_lock_cycle,
)
from app.queries.cursors import address_of, encode_cursor
from app.queries.wait_reasons import LockLink, NamedWait
from app.store.store import Store
from leadhand.errors import ValueUnknown
from leadhand.models.views.shared import LockGrant, LockOwnerView, LockView, ValueHead, ValueView
from leadhand.models.views.view import Page

#: Values of an export that are read in one call, of at most 64 kB each.
_AT_ONCE = 50


class SharedQueries:
    """Raises SessionUnknown for ids that are not found, and StoreAway."""

    def __init__(self, store: Store, ref_of: Callable[[str], SessionRef]) -> None:
        self._store = store
        self._ref = ref_of

    def locks(self, session: str) -> list[LockView]:
        """Returns the named locks of a session's tree that are held or waited for, by name."""
        records = named_locks(self._store, self._ref(session))
        return [lock_view(name, record) for name, record in records.items()]

    def values(
        self, session: str, *, prefix: str = "", limit: int = 50, cursor: str | None = None
    ) -> Page[ValueHead]:
        """Returns a page of the keys (no values) that a session's tree shares, by name prefix."""
        root, after = _root(self._ref(session)), address_of(cursor) if cursor else ""
        names = sorted(
            name
            for name in self._store.names(root, "kv")
            if name.startswith(prefix) and name > after and not name.startswith("#")
        )
        page = names[:limit]
        found = self._store.values(root, "kv", page)
        items = [_head(name, found[name]) for name in page if name in found]
        return Page(items=items, next=encode_cursor(page[-1]) if len(names) > limit else None)

    def value(self, session: str, key: str) -> ValueView:
        """Returns the value that a session's tree shares under a key. Raises ValueUnknown."""
        root = _root(self._ref(session))
        text = self._store.values(root, "kv", [check_name(key, "key")]).get(key)
        if text is None:
            raise ValueUnknown(key, session)
        return _value(key, text)


def exported_values(store: Store, ref: SessionRef) -> Iterator[ValueView]:
    """Yields the values that a tree of sessions shares, if the exported session is its root."""
    if ref.id != ref.root:
        return
    names = sorted(name for name in store.names(ref, "kv") if not name.startswith("#"))
    for start in range(0, len(names), _AT_ONCE):
        batch = names[start : start + _AT_ONCE]
        found = store.values(ref, "kv", batch)
        yield from (_value(name, found[name]) for name in batch if name in found)


def named_locks(store: Store, ref: SessionRef) -> dict[str, LockRecord]:
    """Returns the named locks of a session's tree, without expired holders and lapsed waiters."""
    now, found = store.now_ms(), {}
    for name, text in store.fleet().named_locks(ref.root).items():
        record = LockRecord.model_validate_json(text)
        if record.holder is not None and (record.holder.until or 0) <= now:
            record = record.model_copy(update={"holder": None})
        line = tuple(one for one in record.line if now - one.seen <= LAPSE_MS)
        record = record.model_copy(update={"line": line})
        if record.holder is not None or record.line:
            found[name] = record
    return found


def named_waits(store: Store, ref: SessionRef) -> dict[tuple[str, str], NamedWait]:
    """Returns which named lock each attempt of a session waits for, by session and address.

    A waiter that has stopped asking is left out. The session itself has an empty address.
    """
    found = {}
    locks = named_locks(store, ref)
    for name, record in locks.items():
        for place, waiter in enumerate(record.line):
            if waiter.session != ref.id:
                continue
            ahead = record.holder or (record.line[place - 1] if place else None)
            if ahead is None:
                continue
            verb = "holds it" if record.holder else "is before it in line"
            end = f" until {iso(ahead.until)}, unless it renews that" if ahead.until else ""
            more = f"; {place} before it in line" if record.holder and place else ""
            found[waiter.session, waiter.address or ""] = NamedWait(
                name=name,
                session=ahead.session,
                text=f"{describe_owner(ahead)} {verb}{end}{more}",
                since_ms=waiter.since,
                until_ms=ahead.until,
                cycle=tuple(
                    LockLink(lock, holder.session, holder.address or "", holder.since)
                    for lock, holder in find_lock_cycle(locks, waiter.who, name)
                ),
            )
    return found


def describe_owner(owner: LockOwner) -> str:
    """Describes the holder of a lock, or one who waits for it, in words.

    >>> describe_owner(LockOwner(who="0000000a|0000000a|do", nonce="n", since=0))
    'session 0000000a (do) since 1970-01-01T00:00:00.000+00:00'
    """
    where = f" ({owner.address})" if owner.address else ""
    return f"session {owner.session}{where} since {iso(owner.since)}"


def grant_view(name: str, holder: str, answer: Reply) -> LockGrant:
    """Builds the API's response to a lock request: the grant, or that it waits."""
    record = answer.record or LockRecord()
    held = record.holder
    if answer.word == "waiting":
        by = None if held is None else _owner_view(held)
        return LockGrant(
            name=name, state="waiting", holder=holder, before=answer.before, held_by=by
        )
    until = None if held is None or held.until is None else iso(held.until)
    fence = None if held is None else held.fence
    return LockGrant(name=name, state="held", holder=holder, fence=fence, until=until)


def lock_view(name: str, record: LockRecord) -> LockView:
    """Builds the API's view of a stored lock."""
    held = record.holder
    return LockView(
        name=name,
        holder=None if held is None else _owner_view(held),
        fence=None if held is None else held.fence,
        until=None if held is None or held.until is None else iso(held.until),
        waiting=[_owner_view(one) for one in record.line],
    )


def _owner_view(owner: LockOwner) -> LockOwnerView:
    return LockOwnerView(
        session=owner.session, address=owner.address, by=owner.by, since=iso(owner.since)
    )


def _head(key: str, text: str) -> ValueHead:
    stored = StoredValue.model_validate_json(text.partition("\n")[0])
    return ValueHead(key=key, version=stored.version, at=iso(stored.at_ms), by=stored.by)


def _value(key: str, text: str) -> ValueView:
    value = json.loads(text.partition("\n")[2])
    return ValueView(**_head(key, text).model_dump(), value=value)


def _root(ref: SessionRef) -> SessionRef:
    return SessionRef(ref.root, ref.root)
