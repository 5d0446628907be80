"""Named locks and values that a tree of sessions shares: their records and limits (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator

from app.errors import InvalidDocument
from app.redaction import without_secrets
from leadhand.models.patterns import SHARED_NAME, form_of

#: The most that one value may have, in bytes of JSON, and the keys of a tree. The Lua function
#: refuses more too.
VALUE_BYTES, KEYS = 64 * 1024, 1000
#: For how long a lock is taken at most, in seconds.
LONGEST_TTL_S = 3600.0
#: After this time a waiter that has not asked again is in no line any more.
LAPSE_MS = 10_000


class LockOwner(BaseModel):
    """A holder of a named lock, or one that waits for it."""

    model_config = ConfigDict(frozen=True)

    #: ``session|root|address``; no address if the session owns it.
    who: str
    nonce: str
    #: The name of its token.
    by: str = ""
    since: int = 0
    until: int | None = None
    fence: int | None = None
    #: When a waiter asked last.
    seen: int = 0

    @property
    def session(self) -> str:
        """The id of the session that holds the lock or waits for it."""
        return self.who.partition("|")[0]

    @property
    def address(self) -> str | None:
        """The address of the step that holds the lock or waits for it; None for a whole session."""
        return self.who.split("|", 2)[2] or None


class LockRecord(BaseModel):
    """The stored record of a named lock."""

    model_config = ConfigDict(frozen=True)

    holder: LockOwner | None = None
    line: tuple[LockOwner, ...] = ()

    @field_validator("line", mode="before")
    @classmethod
    def _empty_line(cls, value: JsonValue) -> JsonValue:
        return value or []  # Lua encodes an empty list as {}


def find_lock_cycle(
    locks: Mapping[str, LockRecord], who: str, name: str
) -> list[tuple[str, LockOwner]]:
    """Returns the chain of locks and holders from a waiter back to itself; empty if no deadlock.

    The first is the lock that it waits for, and the last is one that it holds. Empty if its wait
    can end: a holder that waits for no other lock releases its own.
    """
    first = locks.get(name)
    if first is None or first.holder is None or first.holder.who == who:
        return []
    wanted: dict[str, list[str]] = {}
    for lock, record in locks.items():
        for waiter in record.line if record.holder is not None else ():
            wanted.setdefault(waiter.who, []).append(lock)
    paths = [[(name, first.holder)]]
    seen = {name}
    for path in paths:  # the shortest first; it grows
        for lock in wanted.get(path[-1][1].who, ()):
            holder = locks[lock].holder
            if lock in seen or holder is None:
                continue
            seen.add(lock)
            paths.append([*path, (lock, holder)])
            if holder.who == who:
                return paths[-1]
    return []


class StoredValue(BaseModel):
    """What is stored of a value of the tree, without the value."""

    model_config = ConfigDict(frozen=True)

    version: int
    at_ms: int
    by: str


def check_name(name: str, field: str) -> str:
    """Validates the name of a lock or a key and returns it. Raises InvalidDocument."""
    if not re.fullmatch(SHARED_NAME, name):
        raise InvalidDocument(field, name[:80], f"give {form_of(SHARED_NAME)}")
    return name


def pack_value(value: JsonValue) -> str:
    """Serializes a shared value. Raises InvalidDocument if it is too long or has a credential."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    size = len(text.encode())
    if size > VALUE_BYTES:
        hint = (
            f"it has {size} bytes, more than {VALUE_BYTES}; write it to a file and store its path"
        )
        raise InvalidDocument("value", f"{text[:20]}...", hint)
    if without_secrets(value) != value:
        hint = (
            "it has a credential, which would be stored as it is; store where it is found instead"
        )
        raise InvalidDocument("value", "...", hint)
    return text
