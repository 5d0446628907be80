"""The errors of named locks, shared values and limits: each says what is wrong and the fix."""

from __future__ import annotations

from app.errors import LeadhandError
from leadhand.models.problems import Kind


class SharedRefusal(LeadhandError):
    """A named lock or a value of the tree cannot be had."""

    #: The field of the request, and what to do.
    field: str
    hint: str

    @property
    def value(self) -> str:
        """The invalid value of the request's field, such as the name of a lock, as text."""
        return str(self.args[0])


class LockTaken(SharedRefusal):
    """Another attempt or session holds the lock, or is before the caller in its line."""

    kind = Kind.LOCK_TAKEN
    field = "name"

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(name, holder)
        self.name = name
        self.holder = holder
        self.hint = "ask again with queue, or do other work first"

    def __str__(self) -> str:
        return f"lock {self.name!r} is taken: {self.holder}"


class LockLost(SharedRefusal):
    """The caller does not hold the lock: its time is over, or its owner has ended."""

    kind = Kind.LOCK_LOST
    field = "holder"

    def __init__(self, holder: str, name: str) -> None:
        super().__init__(holder, name)
        self.name = name
        self.hint = "stop what the lock protects, and take it again with a new holder"

    def __str__(self) -> str:
        return f"{self.value!r} does not hold lock {self.name!r}: its time is over, or it was freed"


class LockRefused(SharedRefusal):
    """The session can take no locks, or no further ones."""

    kind = Kind.LOCK_REFUSED
    field = "name"

    def __init__(self, name: str, why: str, hint: str) -> None:
        super().__init__(name, why, hint)
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return f"lock {self.value!r} cannot be taken: {self.why}"


class ValueUnknown(SharedRefusal):
    """The tree has no value under this key."""

    kind = Kind.VALUE_UNKNOWN
    field = "key"

    def __init__(self, key: str, session: str) -> None:
        super().__init__(key, session)
        self.session = session
        self.hint = f"`leadhand kv list {session}` lists the keys"

    def __str__(self) -> str:
        return f"the tree of session {self.session!r} has no value under {self.value!r}"


class ValueChanged(SharedRefusal):
    """The value has another version than the caller expects."""

    kind = Kind.VALUE_CHANGED
    field = "if_version"

    def __init__(self, expected: int, key: str, version: int) -> None:
        super().__init__(expected, key, version)
        self.key = key
        #: The version as it is now; 0 if there is no value.
        self.version = version
        self.hint = "read the value, and apply the change to it as it is now"

    def __str__(self) -> str:
        now = f"has version {self.version}" if self.version else "has no value"
        return f"key {self.key!r} {now}, but version {self.value} was expected"


class ValueRefused(SharedRefusal):
    """The tree accepts no value under this key."""

    kind = Kind.VALUE_REFUSED
    field = "key"

    def __init__(self, key: str, why: str, hint: str) -> None:
        super().__init__(key, why, hint)
        self.why = why
        self.hint = hint

    def __str__(self) -> str:
        return f"a value under {self.value!r} cannot be stored or deleted: {self.why}"


class LimitChanged(LeadhandError):
    """The limit has changed since its caller read it."""

    kind = Kind.LIMIT_CHANGED

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"the limit of {self.key!r} has changed since it was read; read it again"


class LimitUnknown(LeadhandError):
    """No limit is set for this key."""

    kind = Kind.LIMIT_UNKNOWN

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key

    def __str__(self) -> str:
        return f"{self.key!r} has no limit; `leadhand limit list` lists all limits"
