"""Stops a process whose Redis has lost its data, has another store, or another fleet's secret.

The store has an id, written once. A process remembers the last id and sweep count that it saw. If
the server is empty, has another id or an older sweep count, the guard raises an alarm until an
operator accepts the data. Accepting gives the store a new id, recorded as the successor of the old
ones, which all processes then adopt by themselves.

Of each accepted secret Redis stores a random salt and an HMAC of it: of one, or of two during a
rotation. A process with another secret would fail every session that it touches.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from pydantic import BaseModel, ConfigDict, JsonValue

from app.errors import InvalidDocument
from app.fleet.inventory import live_workers
from app.settings import Settings
from app.store.identity import SCHEMA, Identity, IdentityUnreadable, Memory, ProcessMemory, state_of
from app.store.store import Store
from leadhand.errors import SecretDiffers, StoreFull, StoreState, StoreUnknown
from leadhand.models.views.fleet import StoreView, WorkerView

log = logging.getLogger(__name__)
#: Seconds between writes of the sweep count, and between log lines about an alarm.
WRITE_S = 5.0
REMIND_S = 60.0
#: Maximum attempts of an acceptance while other processes change the id.
TRIES = 3


class StoreGuard:
    """Compares the store with the identity that this process remembers."""

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._identity_store = store.identity()
        self._memory: Memory = ProcessMemory()
        self._clock = clock
        self._lock = threading.RLock()
        #: None until the store was read once.
        self._known: Identity | None = None
        #: During an alarm at startup: the identity from the memory.
        self._awaited: Identity | None = None
        self._state: StoreState = "known"
        self._written_at = 0.0
        self._logged_at: float | None = None
        #: The id that was read last while the file was unreadable; '' for an empty store.
        self._found_blind: str | None = None
        #: Called with each adopted identity, and with None when there is an alarm.
        #: Called before a store is adopted; an exception prevents the adoption.
        self.join: Callable[[], None] = lambda: None
        self.listeners: list[Callable[[Identity | None], None]] = []

    def remember_in(self, memory: Memory) -> None:
        """Set the file or other memory where the store's identity is kept for the next process."""
        self._memory = memory

    @property
    def file(self) -> str | None:
        """Return the path of the file that remembers the store's identity; None without a file."""
        return self._memory.place

    def expected_identity(self) -> Identity | None:
        """Return the store identity that this process expects; None before it is known."""
        return self._known or self._awaited

    def require(self) -> None:
        """Raise StoreUnknown unless Redis holds the expected store, as far as this process knows.

        It asks Redis only while the store is not known yet, or after an alarm.
        """
        if self._known is None or self._state != "known":
            self.check()

    def require_now(self) -> None:
        """Read the store's identity from Redis; raise StoreUnknown if it is not the expected."""
        with suppress(StoreUnknown):  # a connection that opened; `check` raises the alarm
            if self._is_known() and self._is_expected(self._identity_store.read_verified()):
                return
        self.check()

    def require_now_with_workers(self) -> list[WorkerView]:
        """Raise StoreUnknown unless Redis holds the expected store; returns the live workers.

        Both are read in the same round trip.
        """
        with suppress(StoreUnknown):
            found, workers, now_ms = self._identity_store.read_with_workers()
            if self._is_known() and self._is_expected(found):
                return live_workers(workers, now_ms)
        self.check()
        _, workers, now_ms = self._identity_store.read_with_workers()
        return live_workers(workers, now_ms)

    def _is_known(self) -> bool:
        return self._known is not None and self._state == "known"

    def _is_expected(self, found: Identity | None) -> bool:
        return state_of(self._known, found) == "known"

    def check(self) -> None:
        """Compare the store in Redis with the remembered one, and adopt it or raise StoreUnknown.

        Raises SchemaDiffers for a store that another version wrote. An empty store that was not
        known before gets an id.
        """
        with self._lock:
            found = self._identity_store.read()
            remembered, state = self._compare(found)
            if state != "known":
                self._alarm(state, remembered, found)
            if found is None:
                found = self._assign_id()
            if found is not None:
                self._adopt(found, known=remembered)

    def _compare(self, found: Identity | None) -> tuple[Identity | None, StoreState]:
        """The remembered identity (None at a first start), and how the store differs from it."""
        try:
            remembered = self._known or self._memory.read()
        except IdentityUnreadable:
            return None, self._compare_blind(found)
        state = state_of(remembered, found)
        if state == "another" and remembered and self._identity_store.succeeds(remembered.id):
            log.warning("adopting the accepted store", extra={"was": remembered.id})
            return None, "known"
        return remembered, state

    def _compare_blind(self, found: Identity | None) -> StoreState:
        """Compare without a readable file: only a store that was accepted meanwhile is known."""
        before, now = self._found_blind, found.id if found else ""
        if found and before is not None and before != now and self._identity_store.succeeds(before):
            log.warning("adopting the accepted store", extra={"file": self._memory.place})
            self._found_blind = None
            return "known"
        self._found_blind = now
        return "unreadable"

    def _read_memory(self) -> Identity | None:
        """The remembered identity, or None if there is none or it is unreadable."""
        with suppress(IdentityUnreadable):
            return self._known or self._memory.read()
        return None

    def record_sweeps(self, sweeps: int | None) -> None:
        """Remember the newest sweep count of the store, to detect a rollback of its data."""
        with self._lock:
            if self._known is not None and sweeps is not None and sweeps > self._known.sweeps:
                self._known = self._known._replace(sweeps=sweeps)
                if self._state == "known":
                    self._notify(self._known)
                if self._clock() - self._written_at >= WRITE_S:
                    self._write()

    def check_and_view(self) -> StoreView:
        """Compare Redis with the remembered store; returns both ids and how they differ."""
        remembered, found = self._read_memory(), self._identity_store.read()
        text = ""
        try:
            self.check()
        except StoreUnknown as error:
            text = str(error.problem)
        return StoreView(
            id=found.id if found else None,
            remembered=remembered.id if remembered else None,
            state=self._state,
            text=text,
            file=self._memory.place,
        )

    def accept(self, *, new: bool = False, replaces: str | None = None) -> StoreView:
        """Make the data in Redis the expected store; needs `new` if it is empty or another store.

        Raises InvalidDocument without `new`. Returns the store as the API shows it.
        """
        for tried in range(TRIES):
            with self._lock:
                remembered, found = self._read_memory(), self._identity_store.read()
                state = self._state_now()
                if state == "known" and tried:
                    break  # another process accepted it in between
                if (state in ("empty", "another") or not found) and state != "known" and not new:
                    hint = "give `new` (--new): it does not hold the sessions of the store before"
                    raise InvalidDocument("new", new, hint)
                past = [replaces, remembered and remembered.id, found.id if found else ""]
                if self._try_accept(found, (id_ for id_ in past if id_ is not None)):
                    break
        return self.check_and_view()

    def _try_accept(self, found: Identity | None, past: Iterable[str]) -> bool:
        new = secrets.token_hex(16)
        arguments: dict[str, JsonValue] = {
            "seen": found.id if found else "",
            "id": new,
            "schema": SCHEMA,
            "past": list(dict.fromkeys(past)),
        }
        if self._store.accept(arguments).word != "accepted":
            return False
        log.warning("the store was accepted", extra={"store": new, "past": arguments["past"]})
        return True

    def _state_now(self) -> StoreState:
        try:
            self.check()
        except StoreUnknown as error:
            return error.state
        return "known"

    def _assign_id(self) -> Identity | None:
        try:
            return Identity(self._identity_store.name(), 0)
        except StoreFull:
            return None  # it gets its id once there is room

    def _adopt(self, found: Identity, *, known: Identity | None) -> None:
        sweeps = max(found.sweeps, known.sweeps if known else 0)
        is_news = known is None or known.id != found.id or self._known is None
        if is_news:
            self._identity_store.require_schema()
            self.join()
        if self._logged_at is not None:
            log.warning("Redis holds the known store again", extra={"store": found.id})
        self._state, self._logged_at, self._found_blind = "known", None, None
        self._known = Identity(found.id, sweeps)
        self._notify(self._known)
        if is_news:
            self._write()

    def _alarm(
        self, state: StoreState, remembered: Identity | None, found: Identity | None
    ) -> None:
        error = StoreUnknown(
            self._store.where(),
            state,
            remembered.id if remembered else "",
            found.id if found else "",
            self._memory.place or "",
        )
        self._state, self._awaited = state, remembered
        self._notify(None)
        if self._logged_at is None or self._clock() - self._logged_at >= REMIND_S:
            self._logged_at = self._clock()
            fields = {"remembered": error.remembered, "found": error.found}
            log.critical("%s", error, extra=fields | {"file": self._memory.place})
        raise error

    def _notify(self, identity: Identity | None) -> None:
        for listener in self.listeners:
            listener(identity)

    def _write(self) -> None:
        if self._known is None:
            return
        try:
            self._memory.write(self._known)
            self._written_at = self._clock()
        except OSError as error:
            fields = {"file": self._memory.place, "why": str(error)}
            log.warning("cannot write the store's id", extra=fields)


class Proof(BaseModel):
    """Shows that a process knows the secrets, without revealing them."""

    model_config = ConfigDict(frozen=True)

    salt: str
    marks: tuple[str, ...]


def proof_of(accepted: Sequence[str], salt: str) -> Proof:
    """Computes a salted hash of each secret, by which processes compare their secrets.

    >>> proof_of(["a"], "salt") == proof_of(["a"], "salt")
    True
    >>> proof_of(["a"], "salt") == proof_of(["b"], "salt")
    False
    """
    text = f"leadhand fleet 1 {salt}".encode()
    marks = (hmac.digest(secret.encode(), text, "sha256").hex() for secret in accepted)
    return Proof(salt=salt, marks=tuple(marks))


def check_secret(store: Store, settings: Settings) -> None:
    """Raises SecretDiffers unless this process has the fleet's secrets; the first one sets them.

    A process must accept each secret with which another one signs now. Where it owns its Redis,
    other secrets replace those of the fleet.
    """
    fleet = store.fleet()
    first = proof_of(settings.secrets, secrets.token_hex(16))
    known = Proof.model_validate_json(fleet.first_proof(first.model_dump_json()))
    own = proof_of(settings.secrets, known.salt)
    if not all(
        _accepts(own.marks, marks) for marks in (known.marks, *_in_force(store, known.salt))
    ):
        if not settings.own_redis:
            raise SecretDiffers(store.keys.everywhere("secret"))
        log.warning("the secret has changed: earlier sessions cannot run")
        fleet.delete_used_secrets()
    if known != own:
        fleet.replace_proof(own.model_dump_json())
    _use(store, settings, own)


def renew_secrets(store: Store, settings: Settings) -> None:
    """Records in Redis that this process still uses its secrets; the record expires by itself."""
    text = store.fleet().proof()
    if text is not None:
        _use(store, settings, proof_of(settings.secrets, Proof.model_validate_json(text).salt))


def _use(store: Store, settings: Settings, own: Proof) -> None:
    until_ms = store.now_ms() + round(settings.inventory_s * 1000)
    store.fleet().use_secrets(" ".join((own.salt, *own.marks)), until_ms)


def _in_force(store: Store, salt: str) -> list[tuple[str, ...]]:
    """The marks of the secrets of each live process."""
    now_ms = store.now_ms()
    used = [
        text.split()
        for text, until in store.fleet().secrets_in_use().items()
        if int(until) > now_ms
    ]
    return [tuple(marks) for known, *marks in used if known == salt]


def _accepts(own: Sequence[str], other: Sequence[str]) -> bool:
    """Whether a process accepts the first secret of another one, with which that one signs.

    >>> _accepts(["new", "old"], ["old"]), _accepts(["new"], ["old", "new"])
    (True, False)
    """
    return other[0] in own if other else not own
