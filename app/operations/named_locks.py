"""Takes, renews and releases the named locks of a tree of sessions."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import NamedTuple

from pydantic import JsonValue

from app.domain.ids import SessionRef
from app.domain.records import Reply
from app.domain.shared import LONGEST_TTL_S, LockRecord, check_name
from app.errors import CapabilityRefused, InvalidDocument
from app.operations.registry import Registry
from app.operations.transitions import Transitions
from app.queries.shared import describe_owner, grant_view
from app.security.step_tokens import Caller
from app.store.store import Store
from leadhand.errors import LockLost, LockRefused, LockTaken, SessionUnknown
from leadhand.models.views.shared import LockGrant

#: What the calls of one body or person have in common.
_ENDED = "the attempt that the token was given to has ended"


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


class NamedLocks:
    """Named locks. All methods raise SessionUnknown, InvalidDocument for a name, and StoreAway."""

    def __init__(self, store: Store, registry: Registry, transitions: Transitions) -> None:
        self._store = store
        self._registry = registry
        self._transitions = transitions

    def acquire(
        self, session: str, name: str, call: LockCall, *, ttl_s: float, queue: bool = False
    ) -> LockGrant:
        """Take a named lock, or with `queue` join its queue. Raises LockTaken if it cannot be had.

        A waiter repeats the call. The same holder again extends its time. Raises LockTaken,
        LockLost if this holder had the lock before, LockRefused, CapabilityRefused.
        """
        call = call._replace(holder=call.holder or uuid.uuid4().hex)
        arguments = _arguments(name, ttl_s, call) | {"queue": queue or None}
        answer = self._run(session, arguments)
        if answer.word in ("held", "waiting"):
            return grant_view(name, call.holder, answer)
        raise _refusal(session, name, call, answer)

    def renew(
        self, session: str, name: str, call: LockCall, *, fence: int, ttl_s: float
    ) -> LockGrant:
        """Extend the time that a lock is held. Raises LockLost, LockRefused, CapabilityRefused."""
        answer = self._run(session, _arguments(name, ttl_s, call) | {"fence": fence})
        if answer.word == "held":
            return grant_view(name, call.holder, answer)
        raise _refusal(session, name, call, answer)

    def release(self, session: str, name: str, call: LockCall) -> bool:
        """Release a lock, or leave its queue. Returns whether this holder had it until now."""
        ref = self._registry.ref(session)
        arguments = {"name": check_name(name, "name"), **call.arguments()}
        answer = self._transitions.run("tree_unlock", ref, arguments)
        if answer.word == "unknown":
            raise SessionUnknown(session)
        return answer.word == "released"

    def expire(self, root: str, name: str) -> None:
        """Free a session tree's lock if its time is over, and pass it on; the outbox calls this."""
        self._store.run("tree_look", SessionRef(root, root), "", {"lock": f"lock:{root}:{name}"})

    def _run(self, session: str, arguments: Mapping[str, JsonValue]) -> Reply:
        return self._transitions.run("tree_lock", self._registry.ref(session), arguments)


def _arguments(name: str, ttl_s: float, call: LockCall) -> dict[str, JsonValue]:
    if not 1 <= ttl_s <= LONGEST_TTL_S:
        raise InvalidDocument("ttl_s", ttl_s, f"give 1 to {LONGEST_TTL_S:g} seconds")
    ttl_ms = round(ttl_s * 1000)
    return {"name": check_name(name, "name"), "ttl_ms": ttl_ms, **call.arguments()}


def _refusal(session: str, name: str, call: LockCall, answer: Reply) -> Exception:
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
            return CapabilityRefused(_ENDED)
        case _:
            return SessionUnknown(session)


def _obstacle(record: LockRecord) -> str:
    """Who keeps a lock from a caller."""
    if record.holder is not None:
        return f"{describe_owner(record.holder)} holds it"
    return f"{describe_owner(record.line[0])} is first in its line" if record.line else "in use"
