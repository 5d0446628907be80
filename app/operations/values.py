"""Stores and deletes the values that a tree of sessions shares."""

from __future__ import annotations

import hashlib
import uuid

from pydantic import JsonValue

from app.domain.clock import iso
from app.domain.records import Reply
from app.domain.shared import KEYS, check_name, pack_value
from app.operations.registry import Registry
from app.operations.transitions import Transitions
from leadhand.errors import SessionUnknown, ValueChanged, ValueRefused
from leadhand.models.views.shared import ValueHead


class SharedValues:
    """Values by key. All methods raise SessionUnknown, InvalidDocument for a key, and StoreAway."""

    def __init__(self, registry: Registry, transitions: Transitions) -> None:
        self._registry = registry
        self._transitions = transitions

    def set(
        self,
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
        answer = self._run(session, key, by, arguments, idempotency_key, text)
        if answer.word != "set":
            raise _refusal(session, key, if_version, answer)
        return ValueHead(key=key, version=answer.version or 0, at=iso(answer.now), by=by)

    def delete(
        self,
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
        answer = self._run(session, key, by, arguments, idempotency_key)
        if answer.word != "deleted":
            raise _refusal(session, key, if_version, answer)

    def _run(
        self,
        session: str,
        key: str,
        by: str,
        arguments: dict[str, JsonValue],
        idempotency_key: str | None,
        text: str = "",
    ) -> Reply:
        ref = self._registry.ref(session)
        nonce = f"{by} {idempotency_key}" if idempotency_key else uuid.uuid4().hex
        nonce = hashlib.sha256(f"{nonce} {text}".encode()).hexdigest()[:32]
        arguments |= {"key": check_name(key, "key"), "by": by, "nonce": nonce}
        return self._transitions.run("tree_kv", ref, arguments, outcome=text)


def _refusal(session: str, key: str, expected: int | None, answer: Reply) -> Exception:
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
