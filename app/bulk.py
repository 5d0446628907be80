"""Does one thing to all sessions that a filter means, or counts them first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from app.errors import ControlRefused, SessionStillRuns, SessionUnknown
from app.filters import SessionFilter
from app.keys import SessionRef
from app.views import BulkRefusal, BulkView, SessionView

BulkVerb = Literal["stop", "resume", "abort", "delete"]

#: To how many sessions one call does it; those that refuse do not count.
DONE_AT_MOST = 1000
#: How many ids and refusals are named.
NAMED = 20


class Sessions(Protocol):
    """What this asks of the engine."""

    def meant(self, wanted: SessionFilter, /) -> Iterator[SessionRef]: ...

    def control(
        self, session: str, verb: Literal["stop", "resume", "abort"], /, *, reason: str = ""
    ) -> SessionView: ...

    def delete(self, session: str, /, *, force: bool = False) -> SessionView | None: ...


def preview(sessions: Sessions, verb: BulkVerb, wanted: SessionFilter) -> BulkView:
    """How many sessions are meant, and the first of them; nothing is done."""
    meant = [ref.id for ref in sessions.meant(wanted)]
    return BulkView(
        verb=verb, dry_run=True, matched=len(meant), done=0, refused=0, first=meant[:NAMED]
    )


def carry_out(
    sessions: Sessions,
    verb: BulkVerb,
    wanted: SessionFilter,
    *,
    reason: str = "",
    force: bool = False,
) -> BulkView:
    """Do it to one session after the other; a session that refuses holds up none of the others."""
    meant = [ref.id for ref in sessions.meant(wanted)]
    done = 0
    refusals: list[BulkRefusal] = []
    for session in meant:
        if done == DONE_AT_MOST:
            break
        refusal = _steer(sessions, session, verb, reason=reason, force=force)
        if refusal is None:
            done += 1
        else:
            refusals.append(refusal)
    return BulkView(
        verb=verb,
        dry_run=False,
        matched=len(meant),
        done=done,
        refused=len(refusals),
        first=meant[:NAMED],
        refusals=refusals[:NAMED],
        more=done + len(refusals) < len(meant),
    )


def _steer(
    sessions: Sessions, session: str, verb: BulkVerb, *, reason: str, force: bool
) -> BulkRefusal | None:
    """Why the session refuses; None where it does not."""
    try:
        if verb == "delete":
            sessions.delete(session, force=force)
        else:
            sessions.control(session, verb, reason=reason)
    except (ControlRefused, SessionStillRuns) as error:
        return BulkRefusal(session=session, status=error.status, why=str(error))
    except SessionUnknown as error:
        return BulkRefusal(session=session, status="deleted", why=str(error))
    return None
