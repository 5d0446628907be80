"""Annotates and deletes sessions, and applies one verb to all that match a filter."""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import JsonValue

from app import folders
from app.core.states import Seen, SessionStatus
from app.errors import InvalidDocument
from app.programs import Registry
from app.redaction import without_keys
from app.sessions.context import SessionContext
from app.sessions.control import SessionControl
from app.sessions.listing import encode_cursor
from app.sessions.presenters import shown_status
from app.sessions.queries import Queries
from app.store.store import Store
from app.transitions import Transitions
from leadhand.contract.sessions import BulkVerb, SessionsWanted
from leadhand.errors import (
    ControlRefused,
    ProgramNewer,
    QuotaPassed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
    StoreFull,
)
from leadhand.models.views.session import BulkRefusal, BulkView, SessionView

#: Maximum size of a token, in characters, and of what it contains, in bytes.
LONGEST = 100_000
_MOST_BYTES = 500_000
_VERSION = "b1."
_ID = re.compile("[0-9a-f]{8}")
#: Maximum sessions per call, refusals included.
DONE_AT_MOST = 1000
#: Maximum sessions that one call examines, and one preview.
LOOKED_AT = 20_000
COUNTED = 50_000
#: Maximum ids and refusals in the reply.
NAMED = 20
_AT_WORK = SessionStatus.ACTIVE.value
#: The status of active sessions in lists of which every live step is parked.
_WAITS = "waiting"


class Deletion:
    """Deletes sessions without losing undelivered reports to their parents."""

    def __init__(self, engine: SessionContext, control: SessionControl) -> None:
        self._engine = engine
        self._control = control

    def delete(
        self,
        session: str,
        *,
        force: bool = False,
        expired: bool = False,
        seen: Seen | None = None,
    ) -> SessionView | None:
        """Delete an ended session, or any with `force`, after reporting its end to its parent.

        Returns the view of a session that has yet to end, or None if it is deleted. Raises
        ControlRefused, unless its retention is over, if one of its folders may have work. If the
        process dies in between, the next check of the parked parent step notices it. While Redis is
        full, a session is deleted only if its end has been reported.
        """
        ref = self._engine.registry.ref(session)
        if not (force or expired):
            folders.check_deletion(self._engine, session)
        reports = self._engine.reports
        parent = reports.parent_of(ref)
        if parent:
            try:
                reports.deliver(ref)
            except StoreFull:
                if reports.is_undelivered(ref, parent):
                    raise  # the report would be lost with the session
        view = self._control.delete(session, force=force, seen=seen)
        if view is None and parent:
            reports.report_deletion(ref, parent)
        return view


class Annotations:
    """Changes nothing of a session's work."""

    def __init__(self, registry: Registry, transitions: Transitions, queries: Queries) -> None:
        self._registry = registry
        self._transitions = transitions
        self._queries = queries

    def annotate(
        self,
        session: str,
        *,
        title: str | None = None,
        note: str | None = None,
        archived: bool | None = None,
    ) -> SessionView:
        """Set a session's title and note (an empty text removes it), and whether lists hide it.

        None leaves it as it is. A resume shows a hidden session again. Raises SessionUnknown, and
        ControlRefused for hiding one that is at work.
        """
        ref = self._registry.ref(session)
        arguments: dict[str, JsonValue] = {
            "title": None if title is None else without_keys(title),
            "note": None if note is None else without_keys(note),
            "archived": archived,
        }
        given = {name: value for name, value in arguments.items() if value is not None}
        answer = self._transitions.run("annotate", ref, given)
        if answer.word == "refused":
            raise ControlRefused(session, "archive", answer.status or "", "stop it first")
        return self._queries.session(session)


class Counted(NamedTuple):
    """A session as the preview read it."""

    session: str
    status: str
    updated_ms: int


def make_token(verb: str, counted: Sequence[Counted]) -> str:
    """Encode sessions and a verb as a token, which `parse_token` accepts for this verb only."""
    text = json.dumps([verb, counted], separators=(",", ":"))
    return _VERSION + base64.urlsafe_b64encode(zlib.compress(text.encode())).decode()


def parse_token(verb: str, token: str) -> list[Counted]:
    """Return the sessions of a token. Raises InvalidDocument for one that is not of this verb.

    >>> parse_token("stop", make_token("stop", [Counted("0000aaaa", "active", 5)]))
    [Counted(session='0000aaaa', status='active', updated_ms=5)]
    """
    found = _decode(token)
    match found:
        case [str() as named, list() as rows] if named == verb:
            return [_counted(token, row) for row in rows]
        case [str() as named, list()]:
            hint = f"it is of a preview of {named}; preview {verb} and use that token"
            raise InvalidDocument("token", token[:20], hint)
        case _:
            raise _unknown(token)


def _decode(token: str) -> object:
    if not token.startswith(_VERSION) or len(token) > LONGEST:
        raise _unknown(token)
    try:
        packed = base64.b64decode(token.removeprefix(_VERSION), altchars=b"-_", validate=True)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, _MOST_BYTES)
        found: object = json.loads(text) if unpacker.eof else None
    except (binascii.Error, zlib.error, ValueError, RecursionError):
        raise _unknown(token) from None
    return found


def _counted(token: str, row: object) -> Counted:
    match row:
        case [str() as session, str() as status, int() as updated] if _ID.fullmatch(session):
            return Counted(session, status, updated)
        case _:
            raise _unknown(token)


def _unknown(token: str) -> InvalidDocument:
    return InvalidDocument("token", token[:20], "use the token of the preview")


class How(NamedTuple):
    """The verb and its options."""

    verb: BulkVerb
    #: For `abort`: the reason.
    reason: str = ""
    #: For `delete`: abort active sessions first.
    force: bool = False
    #: For `resume`: whether the caller may bring commands.
    free: bool = True


class Selection(NamedTuple):
    """The sessions that one call applies to, and the cursor for the next call."""

    sessions: list[Counted]
    next: str | None


class Bulk:
    """Applies one verb to every session that a filter selects."""

    def __init__(
        self,
        store: Store,
        queries: Queries,
        control: SessionControl,
        deletion: Deletion,
        annotations: Annotations,
    ) -> None:
        self._annotations = annotations
        self._store = store
        self._queries = queries
        self._control = control
        self._deletion = deletion

    def preview(
        self, verb: BulkVerb, wanted: SessionsWanted, *, cursor: str | None = None
    ) -> BulkView:
        """Count matching sessions, changing none; returns the first ones and a token."""
        meant, following = self._select(wanted, cursor, most=COUNTED, looks=COUNTED)
        return BulkView(
            verb=verb, dry_run=True, matched=len(meant), done=0, refused=0, first=_first(meant),
            token=make_token(verb, meant[:DONE_AT_MOST]), next=following,
        )  # fmt: skip

    def carry_out(self, how: How, wanted: SessionsWanted, *, cursor: str | None = None) -> BulkView:
        """Apply a verb (stop, delete ...) to each session that matches, also if others are refused.

        A refusal does not affect the others. A call examines a limited number. A client that
        follows `next` reaches each session once.
        """
        meant, following = self._select(wanted, cursor, most=DONE_AT_MOST, looks=LOOKED_AT)
        refusals = [r for one in meant if (r := self._apply(one.session, how)) is not None]
        return _view(how, meant, refusals, []).model_copy(update={"next": following})

    def carry_out_token(self, how: How, token: str) -> BulkView:
        """Apply a verb to the sessions that a preview's token names, except those changed since.

        One that changed since is left out and listed. A session that is at work changes all the
        time: it counts as changed once it is at work no more. Raises InvalidDocument.
        """
        meant = parse_token(how.verb, token)
        refusals: list[BulkRefusal] = []
        changed: list[str] = []
        for one in meant:
            if not self._is_as_counted(one):
                changed.append(one.session)
                continue
            seen = None if one.status in (_AT_WORK, _WAITS) else Seen(one.status, one.updated_ms)
            try:
                refusal = self._apply(one.session, how, seen)
            except SessionChanged:
                changed.append(one.session)
                continue
            if refusal is not None:
                refusals.append(refusal)
        return _view(how, meant, refusals, changed)

    def _is_as_counted(self, one: Counted) -> bool:
        """Whether the session exists and has its status still."""
        ref = self._store.ref(one.session)
        if ref is None:
            return False
        fields = self._store.fields(ref)
        if one.status == _WAITS:
            return bool(fields) and shown_status(self._store, ref, fields) == _WAITS
        return fields.get("status") == one.status

    def _select(
        self, wanted: SessionsWanted, cursor: str | None, *, most: int, looks: int
    ) -> Selection:
        meant: list[Counted] = []
        last: JsonValue = None
        for number, looked in enumerate(self._queries.walk(wanted, cursor)):
            if number == looks or len(meant) == most:
                return Selection(meant, encode_cursor(last))
            last = looked.place
            if looked.ref is not None:
                fields = looked.fields
                status = fields["status"]
                if status == _AT_WORK and _WAITS in wanted.status and status not in wanted.status:
                    status = _WAITS
                meant.append(Counted(looked.ref.id, status, int(fields["updated"])))
        return Selection(meant, None)

    def _apply(self, session: str, how: How, seen: Seen | None = None) -> BulkRefusal | None:
        """Apply the verb to one session; returns its refusal, or None.

        With `seen`, raises SessionChanged if it is not as it was.
        """
        try:
            return self._carry_out_one(session, how, seen)
        except SessionChanged as error:
            if seen is not None:
                raise
            return BulkRefusal(session=session, status=error.session_status, why=error.detail)
        except (ControlRefused, SessionStillRuns) as error:
            return BulkRefusal(session=session, status=error.session_status, why=error.detail)
        except QuotaPassed as error:
            return BulkRefusal(session=session, status="failed", why=error.detail)
        except SessionUnknown as error:
            return BulkRefusal(session=session, status="deleted", why=error.detail)

    def _carry_out_one(self, session: str, how: How, seen: Seen | None) -> BulkRefusal | None:
        """Apply the verb; refuses a session whose program needs a newer version."""
        try:
            match how.verb:
                case "delete":
                    self._deletion.delete(session, force=how.force, seen=seen)
                case "archive" | "restore":
                    self._annotations.annotate(session, archived=how.verb == "archive")
                case verb:
                    self._control.apply(session, verb, reason=how.reason, seen=seen, free=how.free)
        except ProgramNewer as error:
            status = self._queries.session(session).status
            return BulkRefusal(session=session, status=status, why=error.detail)
        return None


def _first(meant: Sequence[Counted]) -> list[str]:
    return [one.session for one in meant[:NAMED]]


def _view(
    how: How, meant: Sequence[Counted], refusals: Sequence[BulkRefusal], changed: list[str]
) -> BulkView:
    return BulkView(
        verb=how.verb,
        dry_run=False,
        matched=len(meant),
        done=len(meant) - len(refusals) - len(changed),
        refused=len(refusals),
        first=_first(meant),
        refusals=list(refusals[:NAMED]),
        changed=changed,
    )
