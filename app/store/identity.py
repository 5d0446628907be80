"""The store's identity, in Redis and in a file that a process remembers it by."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from redis import Redis

from app.settings import Settings
from app.store.errors import Away
from app.store.keys import Keys
from app.store.script_runner import Scripts, decoded_map, ms_of_time
from leadhand.errors import SchemaDiffers, SettingInvalid, StoreState

#: The form of the keys and records in Redis. A change that older versions misread increments it.
SCHEMA = "1"
#: Accepted loss in sweeps (about one per second): a server that fsyncs every second loses the last
#: ones when its machine crashes.
TOLERANCE = 15
log = logging.getLogger(__name__)
#: Drafts have random names: processes in several containers may share a folder and a pid.
DRAFT = "draft-"
#: Age at which a draft counts as left by a killed process.
DRAFT_S = 3600.0


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
        away: Away,
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


class IdentityUnreadable(Exception):
    """The file exists and cannot be read, so this is not the first start of a process."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(file, why)
        self.file = file
        self.why = why


class Memory(Protocol):
    """Remembers one identity."""

    @property
    def place(self) -> str | None:
        """Return the path of the file; None if the identity is only in the process's memory."""

    def read(self) -> Identity | None:
        """Read the store identity written last; None without one. Raises IdentityUnreadable."""

    def write(self, identity: Identity) -> None:
        """Save a store identity; returns once it is on the disk. Raises OSError."""


class ProcessMemory:
    """A memory that ends with the process."""

    place: str | None = None

    def __init__(self) -> None:
        self._identity: Identity | None = None

    def read(self) -> Identity | None:
        """Return the store identity that was written last in this process; None without one."""
        return self._identity

    def write(self, identity: Identity) -> None:
        """Remember a store identity in the memory of this process only."""
        self._identity = identity


class FileMemory:
    """A file for its owner only, replaced atomically."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str | None:
        """Return the path of the file, for messages."""
        return str(self._path)

    def read(self) -> Identity | None:
        """Read the store identity from the file; None without a file. Raises IdentityUnreadable."""
        try:
            fields = json.loads(self._path.read_text("ascii"))
            return Identity(str(fields["store"]), int(fields["sweeps"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError) as error:
            why = getattr(error, "strerror", None) or "it does not hold the id of a store"
            raise IdentityUnreadable(str(self._path), why) from error

    def write(self, identity: Identity) -> None:
        """Replace the file by a store identity, flushed to the disk. Raises OSError."""
        number, name = tempfile.mkstemp(prefix=DRAFT, dir=self._path.parent)
        try:
            with os.fdopen(number, "w", encoding="ascii") as file:
                json.dump({"store": identity.id, "sweeps": identity.sweeps}, file)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(self._path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _sync_folder(self._path.parent)


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def memory_of(settings: Settings) -> Memory:
    """Returns the file in which to remember the store's identity, or memory if not writable.

    Raises SettingInvalid if LEADHAND_STATE_DIR is not writable. Without that variable it uses the
    user's state folder; if that is not writable, it logs a warning and remembers nothing.
    """
    folder = settings.state_dir or _user_folder(settings)
    try:
        if not folder.is_absolute():
            raise NotADirectoryError(errno.ENOENT, "it is not an absolute path")
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _probe(folder)
    except OSError as error:
        why = f"it cannot be written ({error.strerror})"
        if settings.state_dir is not None:
            raise SettingInvalid("LEADHAND_STATE_DIR", str(folder), why) from error
        log.warning(
            "the store's id is not saved: after a restart this process cannot notice that "
            "Redis lost its data; set LEADHAND_STATE_DIR",
            extra={"folder": str(folder), "why": why},
        )
        return ProcessMemory()
    return FileMemory(folder / f"store-{_address_hash(settings)}.json")


def _probe(folder: Path) -> None:
    """Make and delete a file, and delete old drafts of killed processes. Raises OSError."""
    number, name = tempfile.mkstemp(prefix=DRAFT, dir=folder)
    os.close(number)
    Path(name).unlink(missing_ok=True)
    for draft in folder.glob(f"{DRAFT}*"):
        with suppress(OSError):  # another process deleted it
            if time.time() - draft.stat().st_mtime > DRAFT_S:
                draft.unlink()


def _user_folder(settings: Settings) -> Path:
    return settings.state_home / "leadhand" / "fleet"


def _address_hash(settings: Settings) -> str:
    """Hash of a Redis URL without its password, and of the prefix.

    >>> one = Settings(redis_url="redis://:first@host/0")
    >>> _address_hash(one) == _address_hash(Settings(redis_url="redis://user:second@host:6379/0"))
    True
    """
    url = urlsplit(settings.redis_url)
    host = f"{url.hostname}:{url.port or 6379}" if url.hostname else ""
    text = f"{host}{url.path or '/0'} {settings.prefix}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
