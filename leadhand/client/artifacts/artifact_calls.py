# Generated from async_artifact_calls.py by scripts/client.py: do not edit.
"""The operations of the synchronous client on artifacts."""

from __future__ import annotations

from leadhand.client.artifacts import requests
from leadhand.client.connection import Connection
from leadhand.client.drawings.drawing_calls import DrawingCalls
from leadhand.client.requests import parsed
from leadhand.models.views import ArtifactView, Page, UploadView


class ArtifactCalls(DrawingCalls):
    """Lists, reads and uploads results and outputs that are too long for Redis."""

    _connection: Connection

    def artifacts(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[ArtifactView]:
        """List a page of a session's artifacts (long results and outputs), by step address."""
        call = requests.listing(session, limit, cursor)
        return parsed(Page[ArtifactView], (self._connection.transport.send(call)).checked())

    def artifact(self, session: str, digest: str) -> bytes:
        """Download all bytes of a session's artifact by its digest. Raises ArtifactUnknown."""
        found = b""
        while True:
            call = requests.part(session, digest, len(found))
            answer = self._connection.transport.send(call)
            piece = requests.piece_of(answer.checked())
            found += piece.data
            if len(found) >= piece.size or not piece.data:
                return found

    def put_artifact(self, session: str, data: bytes) -> UploadView:
        """Upload bytes as an artifact of a session, under their digest. Raises ArtifactRefused.

        The sweep removes it unless an attempt refers to it.
        """
        at = 0
        while True:
            call = requests.upload(session, data, at)
            answer = self._connection.transport.send(call)
            view = parsed(UploadView, answer.checked())
            at += requests.PART_BYTES
            if view.complete or at >= len(data):
                return view
