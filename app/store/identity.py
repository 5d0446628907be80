"""The store's identity in Redis: its id and schema, the ids that it succeeds, its sweep count."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

from redis import Redis

from app.store.keys import Keys
from app.store.script_runner import Scripts, decoded_map, ms_of_time
from leadhand.errors import SchemaDiffers, StoreState

#: The form of the keys and records in Redis. A change that older versions misread increments it.
SCHEMA = "1"
#: Accepted loss in sweeps (about one per second): a server that fsyncs every second loses the last
#: ones when its machine crashes.
TOLERANCE = 15


class Identity(NamedTuple):
    """A store's id and sweep count."""

    id: str
    sweeps: int

    @property
    def oldest(self) -> int:
        """The lowest sweep count that is accepted; below it the data counts as rolled back."""
        return max(0, self.sweeps - TOLERANCE)


def state_of(remembered: Identity | None, found: Identity | None) -> StoreState:
    """Compares the store found with the one remembered: known, empty, another or older.

    >>> state_of(None, None), state_of(Identity("a", 90), None)
    ('known', 'empty')
    >>> state_of(Identity("a", 90), Identity("b", 95))
    'another'
    >>> [state_of(Identity("a", 90), Identity("a", sweeps)) for sweeps in (80, 9)]
    ['known', 'older']
    """
    if remembered is None:
        return "known"
    if found is None:
        return "empty"
    if found.id != remembered.id:
        return "another"
    return "older" if found.sweeps < remembered.oldest else "known"


class IdentityStore:
    """Reads the identity, and assigns an id to a new store."""

    def __init__(
        self,
        redis: Redis,
        scripts: Scripts,
        keys: Keys,
        away: Callable[[], AbstractContextManager[None]],
        clock: Callable[[], int] | None,
    ) -> None:
        self._redis = redis
        self._scripts = scripts
        self._away = away
        self._clock = clock
        self._workers = keys.everywhere("workers")
        self._id = keys.everywhere("store")
        self._past = keys.everywhere("store-past")
        self._schema = keys.everywhere("store-schema")
        self._epoch = keys.everywhere("epoch")

    def read(self) -> Identity | None:
        """Read the id and sweep count of the store in Redis; None for an empty server."""
        with self._away(), self._redis.pipeline(transaction=False) as pipe:
            pipe.get(self._id)
            pipe.hget(self._epoch, "sweeps")
            id_, sweeps = cast("tuple[str | None, str | None]", tuple(pipe.execute()))
        return Identity(id_, int(sweeps or 0)) if id_ else None

    def read_verified(self) -> Identity | None:
        """Read the store's id and sweep count over a verified connection; None without an id.

        Raises StoreUnknown if such a connection is opened and finds another store.
        """
        with self._away():
            return _identity(*self._scripts.ask(self._commands()))

    def read_with_workers(self) -> tuple[Identity | None, dict[str, str], int]:
        """Read the store's identity, all workers' inventories and the server's time in ms."""
        commands = [*self._commands(), ("HGETALL", self._workers), ("TIME",)]
        with self._away():
            id_, sweeps, workers, time = self._scripts.ask(commands)
        now_ms = self._clock() if self._clock else ms_of_time(time)
        return _identity(id_, sweeps), decoded_map(workers), now_ms

    def _commands(self) -> list[tuple[str, ...]]:
        return [("GET", self._id), ("HGET", self._epoch, "sweeps")]

    def succeeds(self, id_: str) -> bool:
        """Whether an operator accepted this store as the replacement of the one with this id."""
        with self._away():
            return bool(self._redis.hexists(self._past, id_))

    def require_schema(self) -> None:
        """Raise SchemaDiffers unless the store, which has an id, has this version's schema."""
        with self._away():
            found = cast("str | None", self._redis.get(self._schema))
        if found != SCHEMA:
            raise SchemaDiffers(found or "", SCHEMA)

    def name(self) -> str:
        """Return the id of the store; one that has none gets a new random id, and the schema."""
        with self._away():
            self._redis.set(self._schema, SCHEMA, nx=True)
            self._redis.set(self._id, secrets.token_hex(16), nx=True)
            return str(self._redis.get(self._id))


def _identity(id_: object, sweeps: object) -> Identity | None:
    """The identity of undecoded replies."""
    count = int(cast("bytes", sweeps or b"0"))
    return Identity(cast("bytes", id_).decode(), count) if id_ else None
