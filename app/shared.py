"""What a tree of sessions shares: named locks, values, and limits by key.

All functions of an engine raise StoreAway; those of a session raise SessionUnknown, and
InvalidDocument for the name of a lock or the key of a value.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.context import Context
from app.core.addresses import SessionRef, iso, lock_name, name_of_lock
from app.core.records import Reply
from app.core.shared import (
    KEYS,
    LAPSE_MS,
    LONGEST_TTL_S,
    LockOwner,
    LockRecord,
    StoredValue,
    check_name,
    find_lock_cycle,
    pack_value,
)
from app.errors import CapabilityRefused, InvalidDocument
from app.security.signatures import Caller
from app.sessions.listing import address_of, encode_cursor
from app.sessions.wait_reasons import LockLink, NamedWait
from app.store.store import Store
from leadhand.errors import (
    LimitChanged,
    LimitUnknown,
    LockLost,
    LockRefused,
    LockTaken,
    SessionUnknown,
    ValueChanged,
    ValueRefused,
    ValueUnknown,
)
from leadhand.models.views.fleet import Limit
from leadhand.models.views.shared import LockGrant, LockOwnerView, LockView, ValueHead, ValueView
from leadhand.models.views.view import Page

#: What a caller read of a limit: one of these values, or `any` for an existing limit.
SeenLimit = Sequence[Limit] | Literal["any"]
_NOBODY = SessionRef("", "")
#: Values of an export that are read in one call, of at most 64 kB each.
_AT_ONCE = 50


def set_value(
    engine: Context,
    session: str,
    key: str,
    value: JsonValue,
    *,
    by: str,
    if_version: int | None = None,
    idempotency_key: str | None = None,
) -> ValueHead:
    """Store a value that a session tree shares; with `if_version` only over that version.

    Version 0 means that it does not exist. Raises ValueChanged, ValueRefused, InvalidDocument
    for a value that is too long or has a credential.
    """
    arguments: dict[str, JsonValue] = {"seen": if_version}
    text = pack_value(value)
    answer = _change_value(engine, session, key, by, arguments, idempotency_key, text)
    if answer.word != "set":
        raise _value_refusal(session, key, if_version, answer)
    return ValueHead(key=key, version=answer.version or 0, at=iso(answer.now), by=by)


def delete_value(
    engine: Context,
    session: str,
    key: str,
    *,
    by: str,
    if_version: int | None = None,
    idempotency_key: str | None = None,
) -> None:
    """Delete a value that a session tree shares; with `if_version` only if it has that version.

    Raises ValueChanged, ValueRefused.
    """
    arguments: dict[str, JsonValue] = {"seen": if_version, "deletes": True}
    answer = _change_value(engine, session, key, by, arguments, idempotency_key)
    if answer.word != "deleted":
        raise _value_refusal(session, key, if_version, answer)


def _change_value(
    engine: Context,
    session: str,
    key: str,
    by: str,
    arguments: dict[str, JsonValue],
    idempotency_key: str | None,
    text: str = "",
) -> Reply:
    ref = engine.registry.ref(session)
    nonce = f"{by} {idempotency_key}" if idempotency_key else uuid.uuid4().hex
    nonce = hashlib.sha256(f"{nonce} {text}".encode()).hexdigest()[:32]
    arguments |= {"key": check_name(key, "key"), "by": by, "nonce": nonce}
    return engine.transitions.run("tree_kv", ref, arguments, outcome=text)


def _value_refusal(session: str, key: str, expected: int | None, answer: Reply) -> Exception:
    """The error for a refusal."""
    match answer.word:
        case "changed":
            return ValueChanged(expected or 0, key, answer.version or 0)
        case "full":
            why = f"the tree of session {session!r} has {KEYS} keys"
            return ValueRefused(key, why, "delete some, or store several things under one key")
        case "ended":
            why = f"session {session!r} is {answer.status}"
            return ValueRefused(key, why, "name a session of the tree that has not ended")
        case "gone":
            why = f"the root of the tree of session {session!r} is deleted, and its values with it"
            return ValueRefused(key, why, "keep the value in a file or in the session's result")
        case _:
            return SessionUnknown(session)


def set_limit(
    engine: Context,
    key: str,
    *,
    concurrency: int | None = None,
    per_minute: float | None = None,
    seen: SeenLimit | None = None,
) -> Limit:
    """Store a limit for attempts with a key: how many run at once, or start per minute.

    Raises LimitChanged if the limit differs from `seen`, and StoreUnknown.
    """
    limit = Limit(key=key, concurrency=concurrency, per_minute=per_minute)
    _write_limit(engine, key, _limit_text(limit), seen)
    return limit


def _write_limit(engine: Context, key: str, text: str | None, seen: SeenLimit | None) -> bool:
    texts = seen if seen is None or seen == "any" else [_limit_text(one) for one in seen]
    answer = engine.store.limit(lock_name(key), text, seen=texts)
    while answer.word == "other_store":
        engine.guard.check()  # raises, unless the store was accepted meanwhile
        answer = engine.store.limit(lock_name(key), text, seen=texts)
    if answer.word == "changed":
        raise LimitChanged(key)
    engine.transitions.after(_NOBODY, answer)
    return answer.word == "replaced"


def remove_limit(engine: Context, key: str, *, seen: SeenLimit | None = None) -> bool:
    """Remove a limit; returns whether it existed. Raises LimitChanged."""
    return _write_limit(engine, key, None, seen)


def read_limit(engine: Context, key: str) -> Limit:
    """Return the limit of one key. Raises LimitUnknown."""
    text = engine.store.fleet().limits().get(lock_name(key))
    if text is None:
        raise LimitUnknown(key)
    return _limit(key, text)


def list_limits(engine: Context) -> list[Limit]:
    """Return all limits, sorted by key."""
    found = sorted(engine.store.fleet().limits().items())
    return [_limit(name_of_lock(lock), text) for lock, text in found]


def _limit(key: str, text: str) -> Limit:
    """Parse a stored limit; another version may have written it."""
    return Limit.model_validate({**json.loads(text), "key": key})


def _limit_text(limit: Limit) -> str:
    """Serialize a limit for the store."""
    return limit.model_dump_json(exclude={"key"}, exclude_none=True)


def list_locks(engine: Context, session: str) -> list[LockView]:
    """Returns the named locks of a session's tree that are held or waited for, by name."""
    records = named_locks(engine.store, engine.registry.ref(session))
    return [lock_view(name, record) for name, record in records.items()]


def list_values(
    engine: Context, session: str, *, prefix: str = "", limit: int = 50, cursor: str | None = None
) -> Page[ValueHead]:
    """Returns a page of the keys (no values) that a session's tree shares, by name prefix."""
    root, after = _root(engine.registry.ref(session)), address_of(cursor) if cursor else ""
    names = sorted(
        name
        for name in engine.store.names(root, "kv")
        if name.startswith(prefix) and name > after and not name.startswith("#")
    )
    page = names[:limit]
    found = engine.store.values(root, "kv", page)
    items = [_head(name, found[name]) for name in page if name in found]
    return Page(items=items, next=encode_cursor(page[-1]) if len(names) > limit else None)


def read_value(engine: Context, session: str, key: str) -> ValueView:
    """Returns the value that a session's tree shares under a key. Raises ValueUnknown."""
    root = _root(engine.registry.ref(session))
    text = engine.store.values(root, "kv", [check_name(key, "key")]).get(key)
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


class LockCall(NamedTuple):
    """Who calls, and the id of this holder."""

    by: str
    #: The body that calls: its attempt owns the lock. None: the session owns it.
    caller: Caller | None = None
    holder: str = ""

    def arguments(self) -> dict[str, JsonValue]:
        """Return the fields that identify the owner of a lock, as arguments for Lua."""
        if self.caller is None or self.caller.is_of_session:
            return {"by": self.by, "nonce": self.holder}
        return {
            "by": self.by,
            "nonce": self.holder,
            "address": self.caller.address,
            "attempt": self.caller.fence,
        }


def acquire_lock(
    engine: Context, session: str, name: str, call: LockCall, *, ttl_s: float, queue: bool = False
) -> LockGrant:
    """Take a named lock, or with `queue` join its queue. Raises LockTaken if it cannot be had.

    A waiter repeats the call. The same holder again extends its time. Raises LockTaken,
    LockLost if this holder had the lock before, LockRefused, CapabilityRefused.
    """
    call = call._replace(holder=call.holder or uuid.uuid4().hex)
    arguments = _lock_arguments(name, ttl_s, call) | {"queue": queue or None}
    answer = _run_lock(engine, session, arguments)
    if answer.word in ("held", "waiting"):
        return grant_view(name, call.holder, answer)
    raise _lock_refusal(session, name, call, answer)


def renew_lock(
    engine: Context, session: str, name: str, call: LockCall, *, fence: int, ttl_s: float
) -> LockGrant:
    """Extend the time that a lock is held. Raises LockLost, LockRefused, CapabilityRefused."""
    answer = _run_lock(engine, session, _lock_arguments(name, ttl_s, call) | {"fence": fence})
    if answer.word == "held":
        return grant_view(name, call.holder, answer)
    raise _lock_refusal(session, name, call, answer)


def release_lock(engine: Context, session: str, name: str, call: LockCall) -> bool:
    """Release a lock, or leave its queue. Returns whether this holder had it until now."""
    ref = engine.registry.ref(session)
    arguments = {"name": check_name(name, "name"), **call.arguments()}
    answer = engine.transitions.run("tree_unlock", ref, arguments)
    if answer.word == "unknown":
        raise SessionUnknown(session)
    return answer.word == "released"


def expire_lock(engine: Context, root: str, name: str) -> None:
    """Free a session tree's lock if its time is over, and pass it on; the outbox calls this."""
    engine.store.run("tree_look", SessionRef(root, root), "", {"lock": f"lock:{root}:{name}"})


def _run_lock(engine: Context, session: str, arguments: Mapping[str, JsonValue]) -> Reply:
    return engine.transitions.run("tree_lock", engine.registry.ref(session), arguments)


def _lock_arguments(name: str, ttl_s: float, call: LockCall) -> dict[str, JsonValue]:
    if not 1 <= ttl_s <= LONGEST_TTL_S:
        raise InvalidDocument("ttl_s", ttl_s, f"give 1 to {LONGEST_TTL_S:g} seconds")
    ttl_ms = round(ttl_s * 1000)
    return {"name": check_name(name, "name"), "ttl_ms": ttl_ms, **call.arguments()}


def _lock_refusal(session: str, name: str, call: LockCall, answer: Reply) -> Exception:
    """The error for a refusal."""
    match answer.word:
        case "taken":
            return LockTaken(name, _obstacle(answer.record or LockRecord()))
        case "lost":
            return LockLost(call.holder, name)
        case "full":
            return LockRefused(name, "100 wait for it already", "try again later")
        case "many":
            why = f"session {session!r} holds 1000 locks"
            return LockRefused(
                name, why, "release some of them, or use one lock for several things"
            )
        case "ended":
            why = f"session {session!r} is {answer.status}"
            return LockRefused(name, why, f"`leadhand explain {session}` says why, and what to do")
        case "superseded":
            return CapabilityRefused("the attempt that the token was given to has ended")
        case _:
            return SessionUnknown(session)


def _obstacle(record: LockRecord) -> str:
    """Who keeps a lock from a caller."""
    if record.holder is not None:
        return f"{describe_owner(record.holder)} holds it"
    return f"{describe_owner(record.line[0])} is first in its line" if record.line else "in use"
