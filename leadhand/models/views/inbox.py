"""Views of the messages that a session has got."""

from __future__ import annotations

from pydantic import JsonValue

from leadhand.models.views.view import View


class InboxMessage(View):
    """A message to a session's turns."""

    #: From 1, in the order of arrival.
    id: int
    at: str
    #: hint (of a person), notice, report, proposal, end, or another word.
    kind: str
    #: The child session or the token that sent it.
    sender: str
    text: str
    data: JsonValue = None
    #: Whether it calls for a person until it is acknowledged.
    escalates: bool = False
    #: When it was acknowledged, and by which turn (its address) or other reader.
    read_at: str | None = None
    read_by: str | None = None
