"""Audits the consistency of the data in Redis and the broker, and repairs it (fsck).

Each suspicion is checked again and repaired by one Lua function, so that the audit can run beside a
working fleet: each finding was true at one moment, and consistent data is not touched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, cast

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.program import SCHEMA_VERSION
from app.core.records import Carrier, Reply
from app.core.states import ENDED
from app.fleet.inventory import consumed_queues
from app.fleet.overview import Fleet
from app.store.fleet import Kind
from app.store.keys import GLOBAL_PARTS, NAMED_PARTS, OTHER_PARTS, SESSION_PARTS, type_of
from app.store.script_library import Verb
from app.store.store import Store
from app.transitions import Transitions
from leadhand.errors import KeyDamaged, SessionUnknown
from leadhand.models.views.fleet import Finding, FsckView

#: Keys per call, and lines per Lua function.
KEYS = 200
LINES = 200
#: Maximum findings in one reply; further ones are counted and repaired, but not listed.
SHOWN = 1000

#: Instructions for findings that cannot be repaired automatically.
_WAYS = {
    "owner_double": "two sessions work in one folder; stop one: leadhand stop {session}",
    "program_lost": "the session cannot continue: leadhand rm --force {session}",
    "session_stuck": "the session will not continue: leadhand abort {session}",
    "key_newer": "a newer version may have written it; repeat when all API processes are upgraded",
    "queue_unconsumed": "start a worker for this queue, or leadhand rehome its sessions",
}
_LISTS: Mapping[str, tuple[Verb, Kind]] = {
    "leases": ("audit_list", "zset"),
    "ready": ("audit_list", "zset"),
    "errands": ("audit_list", "zset"),
    "hooks": ("audit_list", "zset"),
    "holds": ("audit_locks", "zset"),
    "tickets": ("audit_locks", "zset"),
    "called": ("audit_locks", "hash"),
    "waits": ("audit_locks", "hash"),
    "named": ("audit_locks", "hash"),
    "sessions": ("audit_index", "zset"),
    "facts": ("audit_index", "zset"),
    "owed": ("audit_index", "hash"),
}
_INDEXES: Mapping[str, Kind] = {"status": "zset", "users": "set", "owned": "set"}
_OF_SESSION = re.compile(r"^\{([^}]*)\}:([^:]*):(.*)$")
_NOBODY = SessionRef("", "")


class _Key(NamedTuple):
    """A key, classified by its name."""

    name: str
    #: `part` of a session, `list` across sessions, one of NAMED_PARTS, or `unknown`.
    kind: str
    ref: SessionRef = _NOBODY
    of: str = ""


class Audit:
    """Audits all keys and the broker, a batch per call."""

    def __init__(
        self,
        store: Store,
        transitions: Transitions,
        carrier: Carrier,
        fleet: Fleet,
    ) -> None:
        self._store = store
        self._shelves = store.key_scanner()
        self._transitions = transitions
        self._carrier = carrier
        self._fleet = fleet

    def run(self, *, cursor: str | None = None, repair: bool = False) -> FsckView:
        """Audit one batch of Redis keys, repair if asked; returns findings and `next` cursor.

        `next` is None at the end. The first call also audits the broker.
        """
        after, keys = self._shelves.scan(int(cursor or 0), KEYS)
        seen = [_classify(key, self._store.keys.everywhere("")) for key in keys]
        # Nothing else can be read from a key of a wrong type; owners of others are repaired first.
        found = list(self._keys(seen, types=True, repair=repair))
        if not cursor:
            found += _readable(self._broker(repair=repair))
        for key in seen:
            found += _readable(self._audit_key(key, repair=repair))
        found += self._keys(seen, types=False, repair=repair)
        return FsckView(
            items=[_finding(one) for one in found[:SHOWN]],
            found=len(found),
            left=sum(not one.mended for one in found),
            keys=len(keys),
            sessions=sum(_is_session(key) for key in seen),
            next=str(after) if after else None,
        )

    def _audit_key(self, key: _Key, *, repair: bool) -> Iterator[Finding]:
        """Yields the findings of one key."""
        if _is_session(key):
            yield from self._session(key.ref, repair=repair)
        elif key.kind == "list" and key.of in _LISTS:
            verb, kind = _LISTS[key.of]
            yield from self._lines(verb, key.name, kind, {"list": key.of}, repair=repair)
        elif key.kind in _INDEXES:
            about: dict[str, JsonValue] = {"list": key.kind, "of": key.of}
            yield from self._lines(
                "audit_index", key.name, _INDEXES[key.kind], about, repair=repair
            )

    def _session(self, ref: SessionRef, *, repair: bool) -> Iterator[Finding]:
        """Yields the findings of a session: steps first, because the others depend on them."""
        parts: tuple[tuple[str, Kind], ...] = (
            ("steps", "hash"), ("live", "zset"), ("running", "zset"), ("parked", "zset"),
        )  # fmt: skip
        seen: set[Finding] = set()  # a step may be in several of these keys
        for part, kind in parts:
            for addresses in self._shelves.batches(self._store.keys.part(ref, part), kind, LINES):
                about = {"addresses": addresses}
                found = self._run("audit_steps", ref, about, repair=repair)
                yield from (one for one in found if one not in seen)
                seen.update(found)
        yield from self._run("audit_session", ref, {}, repair=repair)

    def _lines(
        self, verb: Verb, key: str, kind: Kind, about: Mapping[str, JsonValue], *, repair: bool
    ) -> Iterator[Finding]:
        for lines in self._shelves.batches(key, kind, LINES):
            yield from self._run(verb, _NOBODY, {**about, "lines": lines}, repair=repair)

    def _keys(self, seen: Sequence[_Key], *, types: bool, repair: bool) -> Iterator[Finding]:
        """Yields keys that have a wrong type; or those that belong to nothing or lack a TTL."""
        keys: list[JsonValue] = [dict(self._key_arguments(key)) for key in seen]
        if keys:
            newer = self._may_be_newer()
            about: dict[str, JsonValue] = {"keys": keys, "newer": newer, "types": types}
            yield from self._run("audit_keys", _NOBODY, about, repair=repair)

    def _may_be_newer(self) -> bool:
        """Whether a newer version may be at work, so that unknown keys are left alone."""
        try:
            workers = self._fleet.inventories()
        except KeyDamaged:
            return True
        return any(worker.schema_version > SCHEMA_VERSION for worker in workers)

    def _key_arguments(self, key: _Key) -> Iterator[tuple[str, JsonValue]]:
        keys = self._store.keys
        yield from (("key", key.name), ("kind", key.kind))
        is_part = key.kind == "part"
        part = key.of.partition(":")[0] if is_part or key.kind == "list" else key.kind
        if (type_ := type_of(part, of_session=is_part)) is not None:
            yield "type", type_
        if key.ref.id:
            yield from (("session", key.ref.id), ("needs", keys.part(key.ref, "session")))
        elif key.kind == "program":
            yield "needs", keys.everywhere(f"users:{key.of}")
        elif key.kind == "id":
            yield "session", key.of

    def _run(
        self, verb: Verb, ref: SessionRef, about: Mapping[str, object], *, repair: bool
    ) -> Sequence[Finding]:
        arguments = cast("dict[str, JsonValue]", {**about, "repair": repair})
        answer = self._answer(verb, ref, arguments)
        if repair and answer.found:
            self._transitions.dispatch(ref, answer)
        return answer.found

    def _answer(self, verb: Verb, ref: SessionRef, arguments: Mapping[str, JsonValue]) -> Reply:
        try:
            return self._transitions.run(verb, ref, arguments)
        except SessionUnknown:  # it belongs to no session, or the session's hash is missing
            return self._store.run(verb, ref, "", arguments)

    def _broker(self, *, repair: bool) -> Iterator[Finding]:
        """Yields messages for deleted sessions, and queues without a worker."""
        workers = self._fleet.inventories()
        taken = {queue for worker in workers for queue in consumed_queues(worker)}
        for queue in self._carrier.strays(partial(self._stray_sessions, taken), drop=repair):
            if queue.strays:
                what = f"{_messages(queue.strays)} in {queue.name} for deleted sessions"
                what += (
                    "" if queue.name in taken else ", or for sessions that do not use this queue"
                )
                yield Finding(kind="message_stray", what=what, mended=repair)
            waiting = queue.depth - queue.strays
            if waiting > 0 and queue.name not in taken:
                what = f"{_messages(waiting)} in {queue.name}, which no worker consumes"
                yield Finding(kind="queue_unconsumed", what=what, mended=False)

    def _stray_sessions(
        self, taken: Collection[str], queue: str, sessions: Sequence[str]
    ) -> set[str]:
        """The deleted ones of these sessions; in an unconsumed queue, also those elsewhere.

        A worker would refuse a message for a session elsewhere, and send it to the right queue.
        """
        damaged: list[str] = []
        found = self._store.fields_of(sessions, damaged)
        known = set(sessions).difference(damaged)
        if queue in taken:
            return known - found.keys()
        return {one for one in known if one not in found or _is_elsewhere(found[one][1], queue)}


def _readable(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yields findings until a key of a wrong type is needed, which is a finding by itself."""
    with suppress(KeyDamaged):
        yield from findings


def _classify(key: str, everywhere: str) -> _Key:
    """Classifies a key by its name.

    >>> _classify("lh:{ab}:cd:steps", "lh:")
    _Key(name='lh:{ab}:cd:steps', kind='part', ref=SessionRef(id='cd', root='ab'), of='steps')
    >>> _classify("lh:status:active", "lh:")[1:], _classify("lh:odd", "lh:").kind
    (('status', SessionRef(id='', root=''), 'active'), 'unknown')
    """
    name = key.removeprefix(everywhere)
    match = _OF_SESSION.match(name)
    if match is not None:
        root, session, part = match.groups()
        known = part in SESSION_PARTS or part.startswith("output:")
        return _Key(key, "part" if known else "unknown", SessionRef(session, root), part)
    if name in GLOBAL_PARTS or name in OTHER_PARTS:
        return _Key(key, "list", of=name)
    kind, _, of = name.partition(":")
    return _Key(key, kind if kind in NAMED_PARTS and of else "unknown", of=of)


def _is_elsewhere(fields: Mapping[str, str], queue: str) -> bool:
    """Whether a session does not use a queue: it has ended, or is at another place.

    >>> at_far = {"status": "active", "place": "far"}
    >>> _is_elsewhere(at_far, "agents@far"), _is_elsewhere(at_far, "agents@here")
    (False, True)
    """
    place = queue.partition("@")[2]
    return fields["status"] in ENDED or bool(place and place != fields["place"])


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count} messages"


def _is_session(key: _Key) -> bool:
    return key.kind == "part" and key.of == "session"


def _finding(one: Finding) -> Finding:
    way = _WAYS.get(one.kind, "").format(session=one.session) or None
    if one.mended:
        way = None
    elif way is None:
        way = "leadhand fsck --repair"
    return one.model_copy(update={"way": way})
