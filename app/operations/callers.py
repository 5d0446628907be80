"""Tells whether a step token is still valid, and grants session-long tokens to attempts."""

from __future__ import annotations

from app.domain.ids import SessionRef
from app.domain.states import SessionStatus
from app.errors import CapabilityRefused
from app.security.step_tokens import Caller
from app.store.store import Store


class Callers:
    """Compares what tokens say with the records in the store. Raises StoreAway."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def is_current(self, caller: Caller) -> bool:
        """Whether the attempt that a step token was made for still owns its step.

        Of a session-long token: whether its session is active, and never failed since.
        """
        ref = self._store.ref(caller.session)
        if ref is None:
            return False
        if caller.is_of_work:
            created = self._store.values(ref, "session", ["created"]).get("created")
            return created is not None and int(created) == caller.fence
        if caller.is_of_session:
            return self._life(ref) == caller.fence
        step = self._store.steps(ref, [caller.address]).get(caller.address)
        return step is not None and step.state == "running" and step.fence == caller.fence

    def session_caller(self, attempt: Caller) -> Caller:
        """Return a running attempt's session-long identity, else raise CapabilityRefused."""
        ref = self._store.ref(attempt.session)
        life = self._life(ref) if ref is not None and self.is_current(attempt) else None
        if life is None:
            raise CapabilityRefused("the attempt that asks for its session's token has ended")
        return Caller.of_session(attempt.session, life)

    def _life(self, ref: SessionRef) -> int | None:
        """When in ms the session was created, or last resumed after a failure.

        None if it is not active.
        """
        found = self._store.values(ref, "session", ["status", "created", "revived"])
        if found.get("status") != SessionStatus.ACTIVE:
            return None
        return int(found.get("revived") or found["created"])
