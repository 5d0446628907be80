"""The operations on artifacts: long results and outputs."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, NamedTuple

from leadhand.contract.calls import Answer, Noun, Op, Steps
from leadhand.contract.requests import calls, parsed, request
from leadhand.errors import AnswerUnreadable

if TYPE_CHECKING:  # the server has no use for it
    import httpx2

from typing import Annotated

from pydantic import Field

from leadhand.contract.bodies import DIGITS, Body, PageQuery, Query, Whole
from leadhand.contract.operation import READS, ApiResponse, BodyRight, Operation, Scope, replies
from leadhand.models.views.artifact import ArtifactView, UploadView
from leadhand.models.views.view import Page

BYTES = "application/octet-stream"
#: The most bytes of one part.
PART_BYTES = 2 * 1024 * 1024
_ALL = "/v1/sessions/{session}/artifacts"


LIST = Operation[PageQuery](
    name="artifacts.listed", method="GET", path=_ALL,
    summary="List a session's artifacts: long results and outputs",
    responses=(replies(Page[ArtifactView], "A page of artifacts, by step."),),
    scope=Scope.READ,
    body_right=READS, query=PageQuery,
)  # fmt: skip


class PartQuery(Query):
    """Which bytes of an artifact to read."""

    #: The first byte.
    at: Whole = 0
    #: Maximum number of bytes; `Content-Range` says which they are, of how many.
    limit: Annotated[int, Field(ge=1, le=PART_BYTES), DIGITS] = PART_BYTES


READ = Operation[PartQuery](
    name="artifacts.read", method="GET", path=f"{_ALL}/{{digest}}",
    summary="Read bytes of an artifact that the session refers to",
    responses=(ApiResponse(200, "Its bytes; `Content-Range` says which.", {BYTES: bytes},
                           headers=("Content-Range", "Content-Disposition")),),
    scope=Scope.READ,
    body_right=READS, query=PartQuery,
)  # fmt: skip


class PartBody(Body):
    """The next part of an artifact."""

    #: Its first byte, and the size of the whole artifact.
    at: Annotated[int, Field(ge=0, le=2**53)]
    size: Annotated[int, Field(ge=1, le=2**53)]
    #: Its bytes in base64: at most 2 MiB of them.
    data: Annotated[str, Field(max_length=PART_BYTES * 4 // 3 + 4)]


PUT = Operation[PartBody](
    name="artifacts.put", method="PUT", path=f"{_ALL}/{{digest}}",
    summary="Upload a part of an artifact, as the attempt's worker",
    responses=(replies(UploadView, "Whether the artifact is complete."),),
    scope=Scope.ADMIN,  # workers upload with the token of their attempt; bodies have none
    body_right=BodyRight("artifacts", "own"), body=PartBody, body_required=True, refuses=(409, 507),
)  # fmt: skip


class Artifacts(Noun):
    """Lists, reads and uploads results and outputs that are too long for Redis."""

    @calls(LIST)
    def artifacts(
        self, session: str, *, limit: int | None = None, cursor: str | None = None
    ) -> Page[ArtifactView]:
        """List a page of a session's artifacts (long results and outputs), by step address."""

    @Op
    def artifact(self, session: str, digest: str) -> Steps[bytes]:
        """Download all bytes of a session's artifact by its digest. Raises ArtifactUnknown."""
        found = b""
        while True:
            call = request(READ, session, digest, at=len(found), limit=PART_BYTES)
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
            view = parsed(UploadView, (yield request(PUT, session, digest, body=body)))
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
