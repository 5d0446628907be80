"""The operations on what a tree of sessions shares: named locks and values."""

from __future__ import annotations

import time
import uuid
from typing import Any

from leadhand.client.driving import Pause
from leadhand.client.operation import Ask, Op, Operations, Steps
from leadhand.client.paths import invalid_form
from leadhand.client.requests import (
    given,
    idempotent,
    items,
    reads,
    request,
    strictly_dumped,
    succeeds,
)
from leadhand.contract import shared
from leadhand.models.patterns import SHARED_NAME
from leadhand.models.views.shared import LockGrant, LockRelease, LockView, ValueHead, ValueView
from leadhand.models.views.view import Page

#: Seconds between two calls of one that waits for a lock: at first, and at most. The API keeps its
#: place in the line for 10 s.
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 1.0


class Shared(Operations):
    """Takes named locks, and reads and stores values, of a session's tree."""

    @Op
    def locks(self, session: str) -> Ask[list[LockView]]:
        """List the named locks of a session's tree that are held or waited for."""
        return items(Page[LockView], request(shared.LOCKS, session))

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
        pause_s = FIRST_WAIT_S
        body = {"name": _checked(name), "holder": uuid.uuid4().hex, "ttl_s": ttl_s}
        end = None if wait_s is None else since + wait_s
        while True:
            queue = end is None or time.monotonic() < end
            grant = yield from reads(
                LockGrant, request(shared.ACQUIRE_LOCK, session, body={**body, "queue": queue})
            )
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
        return reads(LockGrant, request(shared.RENEW_LOCK, session, grant.name, body=body))

    @Op
    def release_lock(self, session: str, grant: LockGrant) -> Steps[bool]:
        """Release a lock. Returns False if it was no longer held."""
        call = request(shared.RELEASE_LOCK, session, grant.name, holder=grant.holder)
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
        call = request(shared.VALUES, session, prefix=prefix or None, limit=limit, cursor=cursor)
        return reads(Page[ValueHead], call)

    @Op
    def value(self, session: str, key: str) -> Ask[ValueView]:
        """Read a value that a session's tree shares, by its key. Raises ValueUnknown."""
        return reads(ValueView, request(shared.VALUE, session, key))

    @Op
    def set_value(
        self, session: str, key: str, value: Any, *, if_version: int | None = None
    ) -> Ask[ValueHead]:
        """Store a JSON value under a key of a session's tree; `if_version` makes it conditional.

        The value has at most 64 KiB. With `if_version` it is stored only if that is the version as
        it is now; 0: there is none. Raises ValueChanged, ValueRefused.
        """
        content = strictly_dumped({"value": value, **given(if_version=if_version)})
        call = request(shared.SET_VALUE, session, key, headers=idempotent(), content=content)
        return reads(ValueHead, call)

    @Op
    def delete_value(self, session: str, key: str, *, if_version: int | None = None) -> Ask[None]:
        """Delete a value of a session's tree by its key; no error if there is none.

        With `if_version` only if that is its version. Raises ValueChanged, ValueRefused.
        """
        return succeeds(
            request(shared.DELETE_VALUE, session, key, headers=idempotent(), if_version=if_version)
        )


def _wait_for_lock(session: str, grant: LockGrant) -> tuple[tuple[str, ...], str]:
    """Returns what keeps a waiter from a lock: a key that tells it from others, and a sentence."""
    owner = grant.held_by
    if owner is None:
        return (session, grant.name), f"waiting for lock {grant.name!r}; {grant.before} before"
    at = f" ({owner.address})" if owner.address else ""
    text = f"waiting for lock {grant.name!r}, held by session {owner.session}{at}"
    return (session, grant.name, owner.session, owner.address or ""), text


def _checked(name: str) -> str:
    """The name of a lock. Raises RequestInvalid."""
    if (refusal := invalid_form("name", name, SHARED_NAME)) is not None:
        raise refusal
    return name
