"""The operations on what a tree of sessions shares: named locks and values."""

from __future__ import annotations

import re
import time
import uuid
from typing import Any
from urllib.parse import quote

from leadhand.client.calls import Call
from leadhand.client.driving import Pause
from leadhand.client.operation import Ask, Op, Operations, Steps
from leadhand.client.paths import session_path
from leadhand.client.requests import (
    dumped,
    get,
    given,
    idempotent,
    items,
    post,
    reads,
    strictly_dumped,
    succeeds,
)
from leadhand.errors import local_error
from leadhand.models.patterns import SHARED_NAME, form_of
from leadhand.models.problems import Kind
from leadhand.models.views import LockGrant, LockRelease, LockView, Page, ValueHead, ValueView

#: Seconds between two calls of one that waits for a lock: at first, and at most. The API keeps its
#: place in the line for 10 s.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0


class Shared(Operations):
    """Takes named locks, and reads and stores values, of a session's tree."""

    @Op
    def locks(self, session: str) -> Ask[list[LockView]]:
        """List the named locks of a session's tree that are held or waited for."""
        return items(Page[LockView], get(session_path(session, "locks")))

    @Op
    def acquire_lock(
        self, session: str, name: str, *, ttl_s: float = 60.0, wait_s: float | None = 0.0
    ) -> Steps[LockGrant]:
        """Take a named lock of a session's tree, waiting at most `wait_s`. Raises LockTaken.

        `wait_s` is None to wait forever. With the token of a body the lock belongs to its attempt,
        otherwise to the session; it is freed with its owner, and `ttl_s` after the last renewal.
        Raises LockTaken if another one has it, and LockRefused. After a few seconds `say` of the
        client is called with who has it.
        """
        since = time.monotonic()
        path, pause_s = session_path(session, "locks"), FIRST_WAIT_S
        body = {"name": _checked(name, "name"), "holder": uuid.uuid4().hex, "ttl_s": ttl_s}
        end = None if wait_s is None else since + wait_s
        while True:
            queue = end is None or time.monotonic() < end
            grant = yield from reads(LockGrant, post(path, {**body, "queue": queue}))
            if grant.state == "held":
                return grant
            if time.monotonic() - since >= self.troubles.patience_s:
                self.troubles.note_wait(*_wait_for_lock(session, grant))
            left_s = pause_s if end is None else max(0.0, end - time.monotonic())
            yield Pause(min(pause_s, left_s))
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)

    @Op
    def renew_lock(self, session: str, grant: LockGrant, *, ttl_s: float = 60.0) -> Ask[LockGrant]:
        """Extend a held lock to `ttl_s` seconds from now. Raises LockLost if its time is over."""
        body = {"holder": grant.holder, "fence": grant.fence or 0, "ttl_s": ttl_s}
        path = _path(session, "locks", grant.name, "name")
        return reads(LockGrant, Call("PUT", path, content=dumped(body)))

    @Op
    def release_lock(self, session: str, grant: LockGrant) -> Steps[bool]:
        """Release a lock. Returns False if it was no longer held."""
        path = _path(session, "locks", grant.name, "name")
        call = Call("DELETE", path, params={"holder": grant.holder})
        return (yield from reads(LockRelease, call)).released

    @Op
    def values(
        self,
        session: str,
        *,
        prefix: str = "",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Ask[Page[ValueHead]]:
        """List a page of the keys (not the values) that a session's tree shares, sorted by name."""
        path = session_path(session, "kv")
        return reads(Page[ValueHead], get(path, prefix=prefix or None, limit=limit, cursor=cursor))

    @Op
    def value(self, session: str, key: str) -> Ask[ValueView]:
        """Read a value that a session's tree shares, by its key. Raises ValueUnknown."""
        return reads(ValueView, get(_path(session, "kv", key, "key")))

    @Op
    def set_value(
        self, session: str, key: str, value: Any, *, if_version: int | None = None
    ) -> Ask[ValueHead]:
        """Store a JSON value under a key of a session's tree; `if_version` makes it conditional.

        The value has at most 64 KiB. With `if_version` it is stored only if that is the version as
        it is now; 0: there is none. Raises ValueChanged, ValueRefused.
        """
        content = strictly_dumped({"value": value, **given(if_version=if_version)})
        path = _path(session, "kv", key, "key")
        return reads(ValueHead, Call("PUT", path, headers=idempotent(), content=content))

    @Op
    def delete_value(self, session: str, key: str, *, if_version: int | None = None) -> Ask[None]:
        """Delete a value of a session's tree by its key; no error if there is none.

        With `if_version` only if that is its version. Raises ValueChanged, ValueRefused.
        """
        path, params = _path(session, "kv", key, "key"), given(if_version=if_version)
        return succeeds(Call("DELETE", path, params=params, headers=idempotent()))


def _wait_for_lock(session: str, grant: LockGrant) -> tuple[tuple[str, ...], str]:
    """Returns what keeps a waiter from a lock: a key that tells it from others, and a sentence."""
    owner = grant.held_by
    if owner is None:
        return (session, grant.name), f"waiting for lock {grant.name!r}; {grant.before} before"
    at = f" ({owner.address})" if owner.address else ""
    text = f"waiting for lock {grant.name!r}, held by session {owner.session}{at}"
    return (session, grant.name, owner.session, owner.address or ""), text


def _path(session: str, noun: str, name: str, field: str) -> str:
    return f"{session_path(session, noun)}/{quote(_checked(name, field), safe='')}"


def _checked(name: str, field: str) -> str:
    """The name of a lock or a key. Raises RequestInvalid."""
    if not re.fullmatch(SHARED_NAME, name):
        hint = f"give {form_of(SHARED_NAME)}"
        raise local_error(Kind.INVALID, f"{field} is {name[:80]!r}", hint=hint, field=field)
    return name
