"""The operation of the asynchronous client on drawings."""

from __future__ import annotations

from typing import Literal

from leadhand.client.async_connection import AsyncConnection
from leadhand.client.calls import Call
from leadhand.client.paths import session_path


class AsyncDrawingCalls:
    """Draws sessions."""

    _connection: AsyncConnection

    async def drawing(
        self, session: str, *, form: Literal["svg", "text"] = "svg", width: int = 120
    ) -> str:
        """Return a drawing of a session: an SVG document, or text with lines of at most `width`."""
        params = {"format": form, "width": width}
        call = Call("GET", session_path(session, "drawing"), params=params)
        return (await self._connection.transport.send(call)).checked().text
