"""Translates errors of Redis and redis-py to the store's errors, for each part of the store."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TypeVar

from redis import Redis, exceptions

from app.errors import ProgramStale
from app.store.keys import Keys
from leadhand.errors import (
    KeyDamaged,
    LeadhandError,
    StoreAway,
    StoreForbids,
    StoreFull,
    StoreReadOnly,
    StoreUnfit,
)
from leadhand.models.text import list_first

T = TypeVar("T")
R = TypeVar("R")

#: Translates the errors of a call to Redis.
Away = Callable[[], AbstractContextManager[None]]
#: Error text of a transition that was called with an outdated program.
_STALE = "stale program"
#: Error text of Redis for a key that holds another type of value than the command reads.
_WRONG_TYPE = "WRONGTYPE"
#: Error texts of Redis: out of memory, disk not writable, and not able to serve (loading, or
#: without its replicas).
_FULL = re.compile(r"\bOOM\b")
_READ_ONLY = re.compile(r"\bMISCONF\b")
#: Error texts of a server whose ACL forbids a command or a key, by itself or in a script.
_FORBIDDEN = re.compile(r"\bNOPERM\b|no permissions|can.t (run|access) this")
_COMMAND = re.compile(r"run the '([^']+)' command")
_CANNOT = re.compile(r"\b(LOADING|BUSY|NOREPLICAS|MASTERDOWN|READONLY|CLUSTERDOWN)\b")
_IS_IT_TLS = "does it speak TLS at this port?"
#: The most rights that one sentence names.
_NAMED = 12
_AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
)


class StorePart:
    """A part of the store: it has the store's client and keys, and `away` translates errors."""

    def __init__(self, redis: Redis, keys: Keys, away: Away) -> None:
        self._redis = redis
        self._keys = keys
        self._away = away


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Context manager that raises the store's own errors, such as StoreAway, for Redis errors.

    `where` is the location of Redis for messages.
    """
    try:
        yield
    except exceptions.RedisError as error:
        translated = _translate(error, where)
        if translated is None:
            raise
        raise translated from error


def _translate(error: exceptions.RedisError, where: str) -> LeadhandError | None:
    if isinstance(error, exceptions.AuthenticationError):
        return StoreForbids(where)
    if isinstance(error, _AWAY):
        why = tls_fault(error)
        return StoreAway(where) if why is None else StoreUnfit(where, why)
    if not isinstance(error, exceptions.ResponseError):
        return None
    text = str(error)
    if isinstance(error, exceptions.NoPermissionError) or _FORBIDDEN.search(text):
        return StoreUnfit(where, lacks_rights([forbidden_command(error)]))
    if isinstance(error, exceptions.OutOfMemoryError) or _FULL.search(text):
        return StoreFull(where)
    return _translate_text(text, where)


def _translate_text(text: str, where: str) -> LeadhandError | None:
    if _READ_ONLY.search(text):
        return StoreReadOnly(where)
    if _CANNOT.search(text):
        return StoreAway(where)
    if _WRONG_TYPE in text:
        return KeyDamaged()
    return ProgramStale() if _STALE in text else None


def readable_replies(replies: Sequence[T]) -> list[T | None]:
    """Returns the replies of a pipeline that does not raise; None for a key of a wrong type."""
    for reply in replies:
        if isinstance(reply, Exception) and _WRONG_TYPE not in str(reply):
            raise reply
    return [None if isinstance(reply, Exception) else reply for reply in replies]


def read_undamaged(
    read: Callable[[Sequence[T]], list[R]], wanted: Sequence[T], damaged: list[T]
) -> list[R]:
    """Reads all at once, without those that have a key of a wrong type: they become `damaged`."""
    try:
        return read(wanted)
    except KeyDamaged:
        if len(wanted) == 1:
            damaged.extend(wanted)
            return []
    half = len(wanted) // 2
    return [
        *read_undamaged(read, wanted[:half], damaged),
        *read_undamaged(read, wanted[half:], damaged),
    ]


def tls_fault(error: BaseException) -> str | None:
    """Says why a TLS connection failed; None if it failed for another reason."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            trust = "name its authority by ssl_ca_certs=FILE, or correct the certificate"
            return f"its certificate is not trusted: {cause.verify_message}; {trust}"
        if isinstance(cause, ssl.SSLError) and not isinstance(cause, ssl.SSLEOFError):
            return f"TLS fails: {cause.reason or cause}; {_IS_IT_TLS}"
        if isinstance(cause, TimeoutError) and "handshake" in str(cause):
            return f"it does not answer the TLS handshake; {_IS_IT_TLS}"
        cause = cause.__cause__ or cause.__context__
    return None


def is_slow(error: BaseException) -> bool:
    """Whether the server did not answer in time: it may be busy, or speak another protocol."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, TimeoutError):
        cause = cause.__cause__ or cause.__context__
    return cause is not None


def forbidden_command(error: exceptions.RedisError) -> str:
    """Returns the command that an ACL forbids, or the whole error for a key or channel."""
    found = _COMMAND.search(str(error))
    return found[1].upper() if found else str(error)


def lacks_rights(commands: Sequence[str]) -> str:
    """Says which rights a user of Redis lacks.

    >>> lacks_rights(["MULTI", "WATCH"])
    'its user may not run MULTI, WATCH; grant what deploy/redis/users.acl grants'
    """
    missing = list(dict.fromkeys(commands))
    names = list_first(missing, _NAMED)
    return f"its user may not run {names}; grant what deploy/redis/users.acl grants"
