"""Applies one verb to all sessions that match a filter, or previews how many match."""

from __future__ import annotations

from typing import Literal, NamedTuple

from pydantic import JsonValue

from app.errors import (
    ControlRefused,
    ProgramNewer,
    QuotaPassed,
    SessionChanged,
    SessionStillRuns,
    SessionUnknown,
)
from app.operations.control import SessionControl
from app.operations.deletion import Deletion
from app.queries.cursors import encode_cursor
from app.queries.filters import SessionFilter
from app.queries.sessions import Queries
from leadhand.models.views import BulkRefusal, BulkView

BulkVerb = Literal["stop", "resume", "abort", "delete"]

#: Maximum sessions per call, refusals included.
DONE_AT_MOST = 1000
#: Maximum sessions that one call examines, and one preview.
LOOKED_AT = 20_000
COUNTED = 50_000
#: Maximum ids and refusals in the reply.
NAMED = 20


class How(NamedTuple):
    """The verb and its options."""

    verb: BulkVerb
    #: For `abort`: the reason.
    reason: str = ""
    #: For `delete`: abort active sessions first.
    force: bool = False


class Selection(NamedTuple):
    """The sessions that one call applies to, and the cursor for the next call."""

    sessions: list[str]
    next: str | None


class Bulk:
    """Applies one verb to every session that a filter selects."""

    def __init__(self, queries: Queries, control: SessionControl, deletion: Deletion) -> None:
        self._queries = queries
        self._control = control
        self._deletion = deletion

    def preview(
        self, verb: BulkVerb, wanted: SessionFilter, *, cursor: str | None = None
    ) -> BulkView:
        """Count the matching sessions and list the first ones, without applying anything."""
        meant, following = self._select(wanted, cursor, most=COUNTED, looks=COUNTED)
        return BulkView(
            verb=verb, dry_run=True, matched=len(meant), done=0, refused=0, first=meant[:NAMED],
            next=following,
        )  # fmt: skip

    def carry_out(self, how: How, wanted: SessionFilter, *, cursor: str | None = None) -> BulkView:
        """Apply the verb to one session after the other; a refusal does not affect the others.

        A call examines a limited number. A client that follows `next` reaches each session once.
        """
        meant, following = self._select(wanted, cursor, most=DONE_AT_MOST, looks=LOOKED_AT)
        refusals = [refusal for one in meant if (refusal := self._apply(one, how)) is not None]
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

    def _select(
        self, wanted: SessionFilter, cursor: str | None, *, most: int, looks: int
    ) -> Selection:
        meant: list[str] = []
        last: JsonValue = None
        for number, looked in enumerate(self._queries.walk(wanted, cursor)):
            if number == looks or len(meant) == most:
                return Selection(meant, encode_cursor(last))
            last = looked.place
            if looked.ref is not None:
                meant.append(looked.ref.id)
        return Selection(meant, None)

    def _apply(self, session: str, how: How) -> BulkRefusal | None:
        """Apply the verb to one session; returns its refusal, or None."""
        try:
            return self._carry_out_one(session, how)
        except (ControlRefused, SessionChanged, SessionStillRuns) as error:
            return BulkRefusal(session=session, status=error.status, why=str(error))
        except QuotaPassed as error:
            return BulkRefusal(session=session, status="failed", why=str(error))
        except SessionUnknown as error:
            return BulkRefusal(session=session, status="deleted", why=str(error))

    def _carry_out_one(self, session: str, how: How) -> BulkRefusal | None:
        """Apply the verb; refuses a session whose program needs a newer version."""
        try:
            if how.verb == "delete":
                self._deletion.delete(session, force=how.force)
            else:
                self._control.apply(session, how.verb, reason=how.reason)
        except ProgramNewer as error:
            status = self._queries.session(session).status
            return BulkRefusal(session=session, status=status, why=str(error))
        return None
