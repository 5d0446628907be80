"""The operations on artifacts: results and outputs that are too long for Redis."""

from __future__ import annotations

import base64
import hashlib
from typing import NamedTuple

import httpx2

from leadhand.client.calls import Answer
from leadhand.client.operation import Ask, Op, Operations, Steps
from leadhand.client.requests import parsed, reads, request
from leadhand.contract import artifacts
from leadhand.contract.artifacts import PART_BYTES
from leadhand.errors import AnswerUnreadable
from leadhand.models.views.artifact import ArtifactView, UploadView
from leadhand.models.views.view import Page


class Artifacts(Operations):
    """Lists, reads and uploads results and outputs that are too long for Redis."""

    @Op
    def artifacts(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[ArtifactView]]:
        """List a page of a session's artifacts (long results and outputs), by step address."""
        call = request(artifacts.LIST, session, limit=limit, cursor=cursor)
        return reads(Page[ArtifactView], call)

    @Op
    def artifact(self, session: str, digest: str) -> Steps[bytes]:
        """Download all bytes of a session's artifact by its digest. Raises ArtifactUnknown."""
        found = b""
        while True:
            call = request(artifacts.READ, session, digest, at=len(found), limit=PART_BYTES)
            answer: Answer = yield call
            piece = piece_of(answer.checked())
            found += piece.data
            if len(found) >= piece.size or not piece.data:
                return found

    @Op
    def put_artifact(self, session: str, data: bytes) -> Steps[UploadView]:
        """Upload bytes as an artifact of a session, under their digest. Raises ArtifactRefused.

        The sweep removes it unless an attempt refers to it.
        """
        at, digest = 0, hashlib.sha256(data).hexdigest()
        while True:
            part = base64.b64encode(data[at : at + PART_BYTES]).decode()
            body = {"at": at, "size": len(data), "data": part}
            view = parsed(UploadView, (yield request(artifacts.PUT, session, digest, body=body)))
            at += PART_BYTES
            if view.complete or at >= len(data):
                return view


class Piece(NamedTuple):
    """A part of an artifact, and the size of the whole."""

    data: bytes
    size: int


def piece_of(response: httpx2.Response) -> Piece:
    """Returns a response's bytes and the size of the whole artifact. Raises AnswerUnreadable.

    The size is that in the Content-Range header.
    """
    _, _, size = response.headers.get("Content-Range", "").partition("/")
    if not size.isdecimal():
        raise AnswerUnreadable(str(response.url), response.status_code)
    return Piece(response.content, int(size))
