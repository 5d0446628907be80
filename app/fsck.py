"""The audit: whether all that Redis and the broker hold agrees, and mending it where it does not.

Every doubt is settled by a script that looks again and mends at once, so that a fleet at work can
be looked at: what is named was so at one moment, and nothing sound is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, cast

from pydantic import JsonValue

from app.errors import SessionUnknown
from app.keys import GLOBAL_PARTS, NAMED_PARTS, OTHER_PARTS, SESSION_PARTS, SessionRef
from app.program import SCHEMA_VERSION
from app.records import Answer, Found
from app.states import ENDED
from app.store import Store
from app.store_audit import Kind
from app.store_library import Verb
from app.transitions import Carrier, Transitions
from app.views import Finding, FsckView, WorkerView

#: How many keys one call looks at, and how many lines one script does.
KEYS = 200
LINES = 200
#: How many findings one answer holds; what is more is counted, and mended all the same.
SHOWN = 1000

#: What a script cannot mend, and what somebody can do about it.
_WAYS = {
    "owner_double": "two work in one folder; stop one of them: leadhand stop {session}",
    "program_lost": "nothing can go on with it: leadhand rm --force {session}",
    "session_stuck": "nothing will go on with it: leadhand abort {session}",
    "key_newer": "a newer version may have written it; look again when all API processes are of it",
    "queue_unconsumed": "start a worker that takes from it, or leadhand rehome its sessions",
}
_LISTS: Mapping[str, tuple[Verb, Kind]] = {
    "leases": ("fsck_list", "zset"),
    "ready": ("fsck_list", "zset"),
    "errands": ("fsck_list", "zset"),
    "hooks": ("fsck_list", "zset"),
    "holds": ("fsck_locks", "zset"),
    "tickets": ("fsck_locks", "zset"),
    "called": ("fsck_locks", "hash"),
    "waits": ("fsck_locks", "hash"),
    "sessions": ("fsck_index", "zset"),
    "owed": ("fsck_index", "hash"),
}
_INDEXES: Mapping[str, Kind] = {"status": "zset", "users": "set", "owned": "set"}
_OF_SESSION = re.compile(r"^\{([^}]*)\}:([^:]*):(.*)$")
_NOBODY = SessionRef("", "")


class _Key(NamedTuple):
    """A key, as its name says what it is."""

    name: str
    #: `part` of a session, `list` across sessions, one of NAMED_PARTS, or `unknown`.
    kind: str
    ref: SessionRef = _NOBODY
    of: str = ""


class Fsck:
    """One look at everything, in calls that each look at some of it."""

    def __init__(
        self,
        store: Store,
        transitions: Transitions,
        carrier: Carrier,
        workers: Callable[[], list[WorkerView]],
    ) -> None:
        self._store = store
        self._shelves = store.shelves()
        self._transitions = transitions
        self._carrier = carrier
        self._workers = workers

    def look(self, *, cursor: str | None = None, repair: bool = False) -> FsckView:
        """Look at some keys, and mend what can be; `next` says where to go on, None at the end.

        The first call looks at the broker too.
        """
        after, keys = self._shelves.scan(int(cursor or 0), KEYS)
        seen = [_named(key, self._store.keys.everywhere("")) for key in keys]
        found = [] if cursor else list(self._broker(repair=repair))
        found += [one for key in seen for one in self._of(key, repair=repair)]
        found += self._alone(seen, repair=repair)
        return FsckView(
            items=[_finding(one) for one in found[:SHOWN]],
            found=len(found),
            left=sum(not one.mended for one in found),
            keys=len(keys),
            sessions=sum(_is_session(key) for key in seen),
            next=str(after) if after else None,
        )

    def _of(self, key: _Key, *, repair: bool) -> Iterator[Found]:
        """What is wrong with what a key holds."""
        if _is_session(key):
            yield from self._session(key.ref, repair=repair)
        elif key.kind == "list" and key.of in _LISTS:
            verb, kind = _LISTS[key.of]
            yield from self._lines(verb, key.name, kind, {"list": key.of}, repair=repair)
        elif key.kind in _INDEXES:
            about: dict[str, JsonValue] = {"list": key.kind, "of": key.of}
            yield from self._lines("fsck_index", key.name, _INDEXES[key.kind], about, repair=repair)

    def _session(self, ref: SessionRef, *, repair: bool) -> Iterator[Found]:
        """Steps first: what is told of the whole depends on them."""
        parts: tuple[tuple[str, Kind], ...] = (
            ("steps", "hash"), ("live", "zset"), ("running", "zset"), ("parked", "zset"),
        )  # fmt: skip
        told: set[Found] = set()  # a step may stand in several of them
        for part, kind in parts:
            for addresses in self._shelves.batches(self._store.keys.part(ref, part), kind, LINES):
                about = {"addresses": addresses}
                found = self._run("fsck_steps", ref, about, repair=repair)
                yield from (one for one in found if one not in told)
                told.update(found)
        yield from self._run("fsck_session", ref, {}, repair=repair)

    def _lines(
        self, verb: Verb, key: str, kind: Kind, about: Mapping[str, JsonValue], *, repair: bool
    ) -> Iterator[Found]:
        for lines in self._shelves.batches(key, kind, LINES):
            yield from self._run(verb, _NOBODY, {**about, "lines": lines}, repair=repair)

    def _alone(self, seen: Sequence[_Key], *, repair: bool) -> Iterator[Found]:
        """Keys that belong to nothing, or have no deadline where they must have one."""
        told: list[JsonValue] = [dict(self._told(key)) for key in seen if key.kind != "list"]
        if told:
            newer = any(worker.schema_version > SCHEMA_VERSION for worker in self._workers())
            about: dict[str, JsonValue] = {"keys": told, "newer": newer}
            yield from self._run("fsck_keys", _NOBODY, about, repair=repair)

    def _told(self, key: _Key) -> Iterator[tuple[str, JsonValue]]:
        keys = self._store.keys
        yield from (("key", key.name), ("kind", key.kind))
        if key.ref.id:
            yield from (("session", key.ref.id), ("needs", keys.part(key.ref, "session")))
        elif key.kind == "program":
            yield "needs", keys.everywhere(f"users:{key.of}")
        elif key.kind == "id":
            yield "session", key.of

    def _run(
        self, verb: Verb, ref: SessionRef, about: Mapping[str, object], *, repair: bool
    ) -> Sequence[Found]:
        arguments = cast("dict[str, JsonValue]", {**about, "repair": repair})
        answer = self._answer(verb, ref, arguments)
        if repair and answer.found:
            self._transitions.dispatch(ref, answer)
        return answer.found

    def _answer(self, verb: Verb, ref: SessionRef, arguments: Mapping[str, JsonValue]) -> Answer:
        try:
            return self._transitions.run(verb, ref, arguments)
        except SessionUnknown:  # it belongs to all sessions, or the session's own hash is gone
            return self._store.run(verb, ref, "", arguments)

    def _broker(self, *, repair: bool) -> Iterator[Found]:
        """Messages to sessions that are gone, and queues that nobody takes from."""
        taken = {queue for worker in self._workers() for queue in worker.queues}
        for queue in self._carrier.strays(partial(self._gone, taken), drop=repair):
            if queue.strays:
                what = f"{_messages(queue.strays)} in {queue.name} for sessions that are gone"
                what += "" if queue.name in taken else ", or that do not wait there"
                yield Found(kind="message_stray", what=what, mended=repair)
            waiting = queue.depth - queue.strays
            if waiting > 0 and queue.name not in taken:
                what = f"{_messages(waiting)} in {queue.name}, and no worker takes from it"
                yield Found(kind="queue_unconsumed", what=what, mended=False)

    def _gone(self, taken: Collection[str], queue: str, sessions: Sequence[str]) -> set[str]:
        """Those that are no more; in a queue that nobody takes from, those elsewhere too.

        Where a worker takes a message, it is refused and sent to the right place.
        """
        found = self._store.fields_of(sessions)
        if queue in taken:
            return set(sessions) - found.keys()
        return {one for one in sessions if one not in found or _is_elsewhere(found[one][1], queue)}


def _named(key: str, everywhere: str) -> _Key:
    """What a key is, by its name.

    >>> _named("lh:{ab}:cd:steps", "lh:")
    _Key(name='lh:{ab}:cd:steps', kind='part', ref=SessionRef(id='cd', root='ab'), of='steps')
    >>> _named("lh:status:active", "lh:")[1:], _named("lh:odd", "lh:").kind
    (('status', SessionRef(id='', root=''), 'active'), 'unknown')
    """
    name = key.removeprefix(everywhere)
    match = _OF_SESSION.match(name)
    if match is not None:
        root, session, part = match.groups()
        known = part in SESSION_PARTS
        return _Key(key, "part" if known else "unknown", SessionRef(session, root), part)
    if name in GLOBAL_PARTS or name in OTHER_PARTS:
        return _Key(key, "list", of=name)
    kind, _, of = name.partition(":")
    return _Key(key, kind if kind in NAMED_PARTS and of else "unknown", of=of)


def _is_elsewhere(fields: Mapping[str, str], queue: str) -> bool:
    """Whether a session will take nothing from a queue: it has ended, or is at another place.

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


def _finding(one: Found) -> Finding:
    way = _WAYS.get(one.kind, "").format(session=one.session) or None
    if one.mended:
        way = None
    elif way is None:
        way = "leadhand fsck --repair"
    return Finding(kind=one.kind, session=one.session, what=one.what, mended=one.mended, way=way)
