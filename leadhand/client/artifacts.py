"""The operations on artifacts: results and outputs that are too long for Redis."""

from __future__ import annotations

import base64
import hashlib
import re
from typing import NamedTuple

import httpx2

from leadhand.client.calls import Answer, Call
from leadhand.client.operation import Ask, Op, Operations, Steps
from leadhand.client.paths import session_path
from leadhand.client.requests import dumped, get, parsed, reads
from leadhand.contract.artifacts import PART_BYTES
from leadhand.errors import AnswerUnreadable, local_error
from leadhand.models.problems import Kind
from leadhand.models.views import ArtifactView, Page, UploadView

#: Bytes in one part of an upload or download.


class Artifacts(Operations):
    """Lists, reads and uploads results and outputs that are too long for Redis."""

    @Op
    def artifacts(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Ask[Page[ArtifactView]]:
        """List a page of a session's artifacts (long results and outputs), by step address."""
        path = session_path(session, "artifacts")
        return reads(Page[ArtifactView], get(path, limit=limit, cursor=cursor))

    @Op
    def artifact(self, session: str, digest: str) -> Steps[bytes]:
        """Download all bytes of a session's artifact by its digest. Raises ArtifactUnknown."""
        found, path = b"", _path(session, digest)
        while True:
            answer: Answer = yield get(path, at=len(found), limit=PART_BYTES)
            piece = piece_of(answer.checked())
            found += piece.data
            if len(found) >= piece.size or not piece.data:
                return found

    @Op
    def put_artifact(self, session: str, data: bytes) -> Steps[UploadView]:
        """Upload bytes as an artifact of a session, under their digest. Raises ArtifactRefused.

        The sweep removes it unless an attempt refers to it.
        """
        at, path = 0, _path(session, hashlib.sha256(data).hexdigest())
        while True:
            part = base64.b64encode(data[at : at + PART_BYTES]).decode()
            content = dumped({"at": at, "size": len(data), "data": part})
            view = parsed(UploadView, (yield Call("PUT", path, content=content)))
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


def _path(session: str, digest: str) -> str:
    return session_path(session, f"artifacts/{_checked(session, digest)}")


def _checked(session: str, digest: str) -> str:
    """The digest. Raises ArtifactUnknown."""
    if not re.fullmatch(r"[0-9a-f]{64}", digest):
        raise local_error(
            Kind.ARTIFACT_UNKNOWN,
            f"{digest[:80]!r} is not the digest of an artifact",
            hint=f"a digest has 64 hexadecimal digits; `leadhand artifacts {session}` lists them",
        )
    return digest
