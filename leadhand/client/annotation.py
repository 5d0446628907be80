"""The call that notes something on a session (pure)."""

from __future__ import annotations

import json

from leadhand.client.calls import Call
from leadhand.client.paths import session_path
from leadhand.client.requests import Ask, read_session
from leadhand.models.views import SessionView


def annotation(
    session: str, title: str | None, note: str | None, archived: bool | None
) -> Ask[SessionView]:
    """Builds the request that sets a session's title, note or archived flag; None sets nothing."""
    given = {"title": title, "note": note, "archived": archived}
    body = {name: value for name, value in given.items() if value is not None}
    call = Call("PATCH", session_path(session), content=json.dumps(body).encode())
    return Ask(call, read_session)
