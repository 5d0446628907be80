"""Does one thing to all sessions that a filter means, or counts them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple, Protocol

from pydantic import JsonValue

from app.cursors import encoded
from app.errors import (
    ControlRefused,
    ProgramNewer,
    QuotaPassed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
)
from app.filters import SessionFilter
from app.listing import Looked
from app.views import BulkRefusal, BulkView, SessionView

BulkVerb = Literal["stop", "resume", "abort", "delete"]

#: To how many sessions one call does it, those that refuse among them.
DONE_AT_MOST = 1000
#: How many sessions one call looks at, and one preview.
LOOKED_AT = 20_000
COUNTED = 50_000
#: How many ids and refusals are named.
NAMED = 20


class How(NamedTuple):
    """What is done to each session."""

    verb: BulkVerb
    #: For `abort`: what the sessions are told.
    reason: str = ""
    #: For `delete`: abort those first that have not ended.
    force: bool = False


class Sessions(Protocol):
    """What this asks of the engine."""

    def session(self, session: str, /) -> SessionView: ...

    def walk(self, wanted: SessionFilter, cursor: str | None, /) -> Iterator[Looked]: ...

    def control(
        self, session: str, verb: Literal["stop", "resume", "abort"], /, *, reason: str = ""
    ) -> SessionView: ...

    def delete(self, session: str, /, *, force: bool = False) -> SessionView | None: ...


class Taken(NamedTuple):
    """The sessions that one call is for, and the cursor to those behind them."""

    sessions: list[str]
    next: str | None


def preview(
    sessions: Sessions, verb: BulkVerb, wanted: SessionFilter, *, cursor: str | None = None
) -> BulkView:
    """How many sessions are meant, and the first of them; nothing is done."""
    meant, following = _taken(sessions, wanted, cursor, most=COUNTED, looks=COUNTED)
    return BulkView(
        verb=verb, dry_run=True, matched=len(meant), done=0, refused=0, first=meant[:NAMED],
        next=following,
    )  # fmt: skip


def carry_out(
    sessions: Sessions, how: How, wanted: SessionFilter, *, cursor: str | None = None
) -> BulkView:
    """Do it to one session after the other; a session that refuses holds up none of the others.

    One call looks at so many and no more: who goes on with its `next` comes to each one once.
    """
    meant, following = _taken(sessions, wanted, cursor, most=DONE_AT_MOST, looks=LOOKED_AT)
    refusals = [refusal for one in meant if (refusal := _steer(sessions, one, how)) is not None]
    return BulkView(
        verb=how.verb,
        dry_run=False,
        matched=len(meant),
        done=len(meant) - len(refusals),
        refused=len(refusals),
        first=meant[:NAMED],
        refusals=refusals[:NAMED],
        next=following,
    )


def _taken(
    sessions: Sessions, wanted: SessionFilter, cursor: str | None, *, most: int, looks: int
) -> Taken:
    meant: list[str] = []
    last: JsonValue = None
    for number, looked in enumerate(sessions.walk(wanted, cursor)):
        if number == looks or len(meant) == most:
            return Taken(meant, encoded(last))
        last = looked.place
        if looked.ref is not None:
            meant.append(looked.ref.id)
    return Taken(meant, None)


def _steer(sessions: Sessions, session: str, how: How) -> BulkRefusal | None:
    """Why the session refuses; None where it does not."""
    try:
        return _done(sessions, session, how)
    except (ControlRefused, SessionChanged, SessionStillRuns) as error:
        return BulkRefusal(session=session, status=error.status, why=str(error))
    except QuotaPassed as error:
        return BulkRefusal(session=session, status="failed", why=str(error))
    except SessionUnknown as error:
        return BulkRefusal(session=session, status="deleted", why=str(error))


def _done(sessions: Sessions, session: str, how: How) -> BulkRefusal | None:
    """Do it. A session whose program only a newer version can read is left to that."""
    try:
        if how.verb == "delete":
            sessions.delete(session, force=how.force)
        else:
            sessions.control(session, how.verb, reason=how.reason)
    except ProgramNewer as error:
        status = sessions.session(session).status
        return BulkRefusal(session=session, status=status, why=str(error))
    return None
