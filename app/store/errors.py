"""Translates errors of Redis and redis-py to the store's errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from redis import exceptions

from app.errors import ProgramStale, StoreAway, StoreForbids, StoreFull, StoreReadOnly

#: Translates the errors of a call to Redis.
Away = Callable[[], AbstractContextManager[None]]
#: Error text of a transition that was called with an outdated program.
_STALE = "stale program"
#: Error texts of Redis: out of memory, disk not writable, and not able to serve (loading, or
#: without its replicas).
_FULL = re.compile(r"\bOOM\b")
_READ_ONLY = re.compile(r"\bMISCONF\b")
_CANNOT = re.compile(r"\b(LOADING|BUSY|NOREPLICAS|MASTERDOWN|READONLY|CLUSTERDOWN)\b")
_AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.BusyLoadingError,
    exceptions.ReadOnlyError,
    exceptions.MasterDownError,
)


@contextmanager
def translate_errors(where: str) -> Iterator[None]:
    """Context manager that raises the store's own errors, such as StoreAway, for Redis errors.

    `where` is the location of Redis for messages.
    """
    try:
        yield
    except exceptions.AuthenticationError as error:
        raise StoreForbids(where) from error
    except _AWAY as error:
        raise StoreAway(where) from error
    except exceptions.ResponseError as error:
        text = str(error)
        if isinstance(error, exceptions.OutOfMemoryError) or _FULL.search(text):
            raise StoreFull(where) from error
        if _READ_ONLY.search(text):
            raise StoreReadOnly(where) from error
        if _CANNOT.search(text):
            raise StoreAway(where) from error
        if _STALE in text:
            raise ProgramStale from error
        raise
