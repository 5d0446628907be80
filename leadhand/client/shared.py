"""The calls about what a tree of sessions shares: named locks and values (pure)."""

from __future__ import annotations

import json
import re
import uuid
from typing import Any
from urllib.parse import quote

from leadhand.client.calls import Call, Param
from leadhand.client.paths import session_path
from leadhand.errors import local_error
from leadhand.models.patterns import SHARED_NAME, form_of
from leadhand.models.problems import Kind
from leadhand.models.views import LockGrant

#: Seconds between two calls of one that waits for a lock: at first, and at most. The API keeps its
#: place in the line for 10 s.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0


def wait_for_lock(session: str, grant: LockGrant) -> tuple[tuple[str, ...], str]:
    """Returns what keeps a waiter from a lock: a key that tells it from others, and a sentence."""
    owner = grant.held_by
    if owner is None:
        return (session, grant.name), f"waiting for lock {grant.name!r}; {grant.before} before"
    at = f" ({owner.address})" if owner.address else ""
    text = f"waiting for lock {grant.name!r}, held by session {owner.session}{at}"
    return (session, grant.name, owner.session, owner.address or ""), text


def lock_list(session: str) -> Call:
    """Builds the request that lists the named locks of a session's tree."""
    return Call("GET", session_path(session, "locks"))


def acquisition(session: str, name: str, holder: str, *, ttl_s: float, queue: bool) -> Call:
    """Builds the request that takes a named lock for a holder; with `queue`, it waits in line."""
    body = {"name": _checked(name, "name"), "holder": holder, "ttl_s": ttl_s, "queue": queue}
    return Call("POST", session_path(session, "locks"), content=_json(body))


def renewal(session: str, name: str, holder: str, *, fence: int, ttl_s: float) -> Call:
    """Builds the request that extends a held lock to `ttl_s` seconds from now."""
    body = {"holder": holder, "fence": fence, "ttl_s": ttl_s}
    return Call("PUT", _path(session, "locks", name, "name"), content=_json(body))


def release(session: str, name: str, holder: str) -> Call:
    """Builds the request that releases a lock, or leaves its queue."""
    return Call("DELETE", _path(session, "locks", name, "name"), params={"holder": holder})


def key_list(session: str, prefix: str, limit: int | None, cursor: str | None) -> Call:
    """Builds the request that lists a page of the keys that a session's tree shares."""
    given = {"prefix": prefix or None, "limit": limit, "cursor": cursor}
    params: dict[str, Param] = {name: one for name, one in given.items() if one is not None}
    return Call("GET", session_path(session, "kv"), params=params)


def reading(session: str, key: str) -> Call:
    """Builds the request that reads a value that a session's tree shares, by its key."""
    return Call("GET", _path(session, "kv", key, "key"))


def storing(session: str, key: str, value: Any, if_version: int | None) -> Call:
    """Builds the request that stores a shared value under a key; a repeat is executed once."""
    body = {"value": value} | ({} if if_version is None else {"if_version": if_version})
    path = _path(session, "kv", key, "key")
    return Call("PUT", path, headers=_key(), content=_json(body))


def deletion(session: str, key: str, if_version: int | None) -> Call:
    """Builds the request that deletes a shared value by its key; a repeat is executed once."""
    params = {} if if_version is None else {"if_version": if_version}
    return Call("DELETE", _path(session, "kv", key, "key"), headers=_key(), params=params)


def _path(session: str, noun: str, name: str, field: str) -> str:
    return f"{session_path(session, noun)}/{quote(_checked(name, field), safe='')}"


def _checked(name: str, field: str) -> str:
    """The name of a lock or a key. Raises RequestInvalid."""
    if not re.fullmatch(SHARED_NAME, name):
        hint = f"give {form_of(SHARED_NAME)}"
        raise local_error(Kind.INVALID, f"{field} is {name[:80]!r}", hint=hint, field=field)
    return name


def _key() -> dict[str, str]:
    return {"Idempotency-Key": uuid.uuid4().hex}


def _json(body: Any) -> bytes:
    return json.dumps(body, allow_nan=False).encode()
