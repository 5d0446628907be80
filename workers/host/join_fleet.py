"""Checks before a worker's first step and later: the store, the fleet's secret, its own name."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import psutil
from pydantic import BaseModel, JsonValue

from app.core.addresses import SessionRef
from app.engine import Engine
from app.errors import WorkerNameTaken
from app.fleet.store_guard import check_secret
from app.store.identity import Identity
from leadhand.errors import SchemaDiffers, SecretDiffers, StoreAway, StoreForbids, StoreUnknown

log = logging.getLogger(__name__)
#: Seconds between two tries while the name may become free.
RENEW_EVERY_S = 0.5
#: Seconds between two tries, and between two log lines about the same outage.
EVERY_S = 1.0
LOG_EVERY_S = 30.0


class Holder(NamedTuple):
    """The process that holds a name: its host, pid scope, pid and start time."""

    host: str
    #: The boot and pid namespace within which the pid is unique; '' if unknown.
    scope: str
    pid: int
    began: str

    @property
    def text(self) -> str:
        """Serialize the holder of a worker's name as text for Redis."""
        return "|".join(map(str, self))

    @classmethod
    def of(cls, text: str) -> Holder:
        """Parse the stored text of a worker name's holder, also the older form without a scope.

        >>> Holder.of(Holder("one", "boot:1", 42, "7.0").text).pid
        42
        >>> Holder.of("one|42|7.0").scope
        ''
        """
        place, pid, began = text.rsplit("|", 2)
        host, _, scope = place.partition("|")
        return cls(host, scope, int(pid), began)

    @classmethod
    def here(cls) -> Holder:
        """Return this process as the holder of a worker's name."""
        return cls(socket.gethostname(), _scope(), os.getpid(), _began(os.getpid()) or "")

    def is_on_this_host(self) -> bool:
        """Whether the holder's host name is this host's; two containers may share one."""
        return self.host == socket.gethostname()

    def has_ended(self) -> bool:
        """Whether the holder's process is known to have ended."""
        is_visible = self.is_on_this_host() and self.scope == _scope() != ""
        return is_visible and _began(self.pid) != self.began


class NameLock:
    """This process's lock on its worker's name; it expires with the inventory."""

    def __init__(self, engine: Engine, name: str) -> None:
        self._store = engine.store
        self._name = name
        self._ttl_ms = round(engine.settings.inventory_s * 1000)
        self._holder = Holder.here().text

    def take(self) -> None:
        """Lock the worker's name if it is free or its holder has ended. Raises WorkerNameTaken.

        Waits for the lock to expire if the holder has this host's name but another pid scope.
        """
        until = time.monotonic() + self._ttl_ms / 1000 + RENEW_EVERY_S
        while (by := self._try()) is not None:
            if by.has_ended():
                continue  # another process took the name meanwhile
            if not by.is_on_this_host() or by.scope == _scope() or time.monotonic() > until:
                raise WorkerNameTaken(self._name, by.host, by.pid)
            time.sleep(RENEW_EVERY_S)

    def _try(self) -> Holder | None:
        """Take the name if it is free or its holder ended; otherwise return the holder."""
        by = self._hold(self._ttl_ms)
        if by and Holder.of(by).has_ended():
            by = self._hold(self._ttl_ms, gone=by)
        return Holder.of(by) if by else None

    def renew(self) -> None:
        """Renew the lock on the worker's name; if another worker has it, SIGTERM this process."""
        by = self._hold(self._ttl_ms)
        if by:
            holder = Holder.of(by)
            error = WorkerNameTaken(self._name, holder.host, holder.pid)
            log.critical("%s; this worker drains and ends", error)
            os.kill(os.getpid(), signal.SIGTERM)

    def release(self) -> None:
        """Release the lock on the worker's name; an unreachable store is ignored."""
        with suppress(StoreAway):
            self._hold(0)

    def _hold(self, ttl_ms: int, gone: str | None = None) -> str | None:
        """Take or renew the lock; the holder's text if another process holds it, else None."""
        arguments: dict[str, JsonValue] = {
            "name": self._name,
            "holder": self._holder,
            "gone": gone,
            "ttl_ms": ttl_ms,
        }
        answer = self._store.run("hold_name", SessionRef("", ""), "", arguments)
        return answer.by if answer.word == "taken" else None


def _scope() -> str:
    """The boot and the pid namespace of this process; '' if they are hidden."""
    if not Path("/proc/self/stat").exists():
        return "host"  # a system without pid namespaces
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """The start time of a running process of this host; None if no process has this pid."""
    if not Path("/proc/self/stat").exists():
        return _began_by_clock(pid)
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]  # ticks since the boot


def _began_by_clock(pid: int) -> str | None:
    """The start time on a system without /proc."""
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return str(process.create_time())
    except psutil.Error:
        return None


class Refusal(BaseModel):
    """Why a worker refused to start."""

    why: str
    at_ms: int


def join_fleet(engine: Engine, name: str) -> NameLock:
    """Wait for the store, check the fleet's secret and lock the worker's name.

    Raises SchemaDiffers, SecretDiffers, WorkerNameTaken, and records them for `leadhand doctor`.
    """
    engine.guard.join = partial(check_secret, engine.store, engine.settings)
    lock = NameLock(engine, name)
    try:
        wait_for_store(engine)
        lock.take()
    except (SchemaDiffers, SecretDiffers, WorkerNameTaken) as error:
        refusal = Refusal(why=str(error), at_ms=engine.store.now_ms())
        engine.store.fleet().record_refusal(_refusal_key(name, error), refusal.model_dump_json())
        raise
    engine.store.fleet().delete_refusals([_refusal_key(name, None)])
    return lock


def _refusal_key(name: str, error: Exception | None) -> str:
    """The worker's name, with its host if another worker has the name."""
    return f"{name} on {socket.gethostname()}" if isinstance(error, WorkerNameTaken) else name


def wait_for_store(engine: Engine) -> None:
    """Wait until Redis is reachable and holds the store that this worker expects or may adopt.

    The worker waits instead of exiting: its service manager would restart it again and again.
    """
    logged_s = -LOG_EVERY_S
    while True:
        try:
            engine.guard.check()
            return
        except StoreUnknown:
            pass  # the guard logs it, and repeats that from time to time
        except StoreForbids:
            raise
        except StoreAway as error:
            if time.monotonic() - logged_s >= LOG_EVERY_S:
                logged_s = time.monotonic()
                log.warning("worker waits for the store", extra={"why": str(error)})
        time.sleep(EVERY_S)


class ServedStore:
    """Written by the parent's store guard, read by every process forked after its creation.

    The guard of a pool process uses it as its memory, to compare with what the parent knows.
    """

    place: str | None = None

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self._id = context.Array("c", 32, lock=False)
        self._sweeps = context.Value("q", 0, lock=False)
        self._closed = context.Value("b", 0, lock=False)

    def update(self, identity: Identity | None) -> None:
        """Set the store that this worker serves; None stops claims until one is accepted."""
        if identity is not None:
            self._id.value = identity.id.encode()
            self._sweeps.value = identity.sweeps
        self._closed.value = int(identity is None)

    def is_closed(self) -> bool:
        """Whether Redis holds a store that was not accepted."""
        return bool(self._closed.value)

    def expected(self) -> Identity | None:
        """Return the identity that each new connection must match; None before the first."""
        return self.read()

    def read(self) -> Identity | None:
        """Return the store identity that the host's processes share; None if there is none yet."""
        id_ = self._id.value.decode()
        return Identity(id_, self._sweeps.value) if id_ else None

    def write(self, identity: Identity) -> None:
        """Do nothing: only the parent writes, with `update`."""
