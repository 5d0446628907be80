# Generated from async_shared_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client on what a tree of sessions shares."""

from __future__ import annotations

import time
import uuid
from typing import Any

from leadhand.client import shared
from leadhand.client.calls import Call
from leadhand.client.connection import Connection
from leadhand.client.requests import M, parsed
from leadhand.client.troubles.report import TroubleReport
from leadhand.models.views import LockGrant, LockRelease, LockView, Page, ValueHead, ValueView


class SharedCalls:
    """Takes named locks, and reads and stores values, of a session's tree."""

    _connection: Connection
    troubles: TroubleReport

    def locks(self, session: str) -> list[LockView]:
        """List the named locks of a session's tree that are held or waited for."""
        return (self._ask_shared(Page[LockView], shared.lock_list(session))).items

    def acquire_lock(
        self, session: str, name: str, *, ttl_s: float = 60.0, wait_s: float | None = 0.0
    ) -> LockGrant:
        """Take a named lock of a session's tree, waiting at most `wait_s`. Raises LockTaken.

        `wait_s` is None to wait forever. With the token of a body the lock belongs to its attempt,
        otherwise to the session; it is freed with its owner, and `ttl_s` after the last renewal.
        Raises LockTaken if another one has it, and LockRefused. After a few seconds `say` of the
        client is called with who has it.
        """
        since = time.monotonic()
        holder, pause = uuid.uuid4().hex, shared.FIRST_WAIT_S
        end = None if wait_s is None else time.monotonic() + wait_s
        while True:
            queue = end is None or time.monotonic() < end
            call = shared.acquisition(session, name, holder, ttl_s=ttl_s, queue=queue)
            grant = self._ask_shared(LockGrant, call)
            if grant.state == "held":
                return grant
            if time.monotonic() - since >= self.troubles.patience_s:
                self.troubles.note_wait(*shared.wait_for_lock(session, grant))
            left = pause if end is None else max(0.0, end - time.monotonic())
            time.sleep(min(pause, left))
            pause = min(2 * pause, shared.LONGEST_WAIT_S)

    def renew_lock(self, session: str, grant: LockGrant, *, ttl_s: float = 60.0) -> LockGrant:
        """Extend a held lock to `ttl_s` seconds from now. Raises LockLost if its time is over."""
        call = shared.renewal(
            session, grant.name, grant.holder, fence=grant.fence or 0, ttl_s=ttl_s
        )
        return self._ask_shared(LockGrant, call)

    def release_lock(self, session: str, grant: LockGrant) -> bool:
        """Release a lock. Returns False if it was no longer held."""
        call = shared.release(session, grant.name, grant.holder)
        return (self._ask_shared(LockRelease, call)).released

    def values(
        self,
        session: str,
        *,
        prefix: str = "",
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page[ValueHead]:
        """List a page of the keys (not the values) that a session's tree shares, sorted by name."""
        call = shared.key_list(session, prefix, limit, cursor)
        return self._ask_shared(Page[ValueHead], call)

    def value(self, session: str, key: str) -> ValueView:
        """Read a value that a session's tree shares, by its key. Raises ValueUnknown."""
        return self._ask_shared(ValueView, shared.reading(session, key))

    def set_value(
        self, session: str, key: str, value: Any, *, if_version: int | None = None
    ) -> ValueHead:
        """Store a JSON value under a key of a session's tree; `if_version` makes it conditional.

        The value has at most 64 KiB. With `if_version` it is stored only if that is the version as
        it is now; 0: there is none. Raises ValueChanged, ValueRefused.
        """
        return self._ask_shared(ValueHead, shared.storing(session, key, value, if_version))

    def delete_value(self, session: str, key: str, *, if_version: int | None = None) -> None:
        """Delete a value of a session's tree by its key; no error if there is none.

        With `if_version` only if that is its version. Raises ValueChanged, ValueRefused.
        """
        call = shared.deletion(session, key, if_version)
        (self._connection.transport.send(call)).checked()

    def _ask_shared(self, model: type[M], call: Call) -> M:
        return parsed(model, (self._connection.transport.send(call)).checked())
