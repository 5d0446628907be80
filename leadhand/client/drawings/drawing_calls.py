# Generated from async_drawing_calls.py by scripts/client.py: do not edit.
"""The operation of the synchronous client on drawings."""

from __future__ import annotations

from typing import Literal

from leadhand.client.calls import Call
from leadhand.client.connection import Connection
from leadhand.client.paths import session_path


class DrawingCalls:
    """Draws sessions."""

    _connection: Connection

    def drawing(
        self, session: str, *, form: Literal["svg", "text"] = "svg", width: int = 120
    ) -> str:
        """Return a drawing of a session: an SVG document, or text with lines of at most `width`."""
        params = {"format": form, "width": width}
        call = Call("GET", session_path(session, "drawing"), params=params)
        return (self._connection.transport.send(call)).checked().text
