"""The operations of the asynchronous client on artifacts."""

from __future__ import annotations

from leadhand.client.artifacts import requests
from leadhand.client.async_connection import AsyncConnection
from leadhand.client.drawings.async_drawing_calls import AsyncDrawingCalls
from leadhand.client.requests import parsed
from leadhand.models.views import ArtifactView, Page, UploadView


class AsyncArtifactCalls(AsyncDrawingCalls):
    """Lists, reads and uploads results and outputs that are too long for Redis."""

    _connection: AsyncConnection

    async def artifacts(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[ArtifactView]:
        """List a page of a session's artifacts (long results and outputs), by step address."""
        call = requests.listing(session, limit, cursor)
        return parsed(Page[ArtifactView], (await self._connection.transport.send(call)).checked())

    async def artifact(self, session: str, digest: str) -> bytes:
        """Download all bytes of a session's artifact by its digest. Raises ArtifactUnknown."""
        found = b""
        while True:
            call = requests.part(session, digest, len(found))
            answer = await self._connection.transport.send(call)
            piece = requests.piece_of(answer.checked())
            found += piece.data
            if len(found) >= piece.size or not piece.data:
                return found

    async def put_artifact(self, session: str, data: bytes) -> UploadView:
        """Upload bytes as an artifact of a session, under their digest. Raises ArtifactRefused.

        The sweep removes it unless an attempt refers to it.
        """
        at = 0
        while True:
            call = requests.upload(session, data, at)
            answer = await self._connection.transport.send(call)
            view = parsed(UploadView, answer.checked())
            at += requests.PART_BYTES
            if view.complete or at >= len(data):
                return view
