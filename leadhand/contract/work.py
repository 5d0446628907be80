"""The operations on local steps, which the submitter carries out, and on artifacts."""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from pydantic import BaseModel, Field

from leadhand.contract.calls import Answer, Ask, Call, Noun, Op, Steps
from leadhand.contract.operation import (
    DIGITS,
    READS,
    ApiResponse,
    Body,
    BodyRight,
    Operation,
    PageQuery,
    Query,
    Scope,
    Whole,
    replies,
)
from leadhand.contract.requests import calls, parsed, reads, request
from leadhand.errors import AnswerUnreadable
from leadhand.models.local_work import BeatWork, ClaimWork, SettleWork
from leadhand.models.views.session import BeatView, SettledView, WorkView
from leadhand.models.views.step import ArtifactView, UploadView
from leadhand.models.views.view import Page

if TYPE_CHECKING:
    import httpx2

_WORK = "/v1/sessions/{session}/work"
#: The token for the local steps of a session is for that session alone.
_WORKS = BodyRight("work", "own")
CLAIM = Operation[ClaimWork](
    name="work.claim", method="POST", path=f"{_WORK}/claim",
    summary="Claim the next local step of a session, and wait for one",
    responses=(replies(WorkView, "The step, if one is ready, and the session's status."),),
    scope=Scope.CONTROL,  # or the work token of the session
    body_right=_WORKS, body=ClaimWork, body_required=True,
)  # fmt: skip
BEAT = Operation[BeatWork](
    name="work.beat", method="POST", path=f"{_WORK}/beat",
    summary="Extend the lease of an attempt at a local step",
    responses=(replies(BeatView, "Whether the attempt may continue."),),
    scope=Scope.CONTROL,
    body_right=_WORKS, body=BeatWork, body_required=True,
)  # fmt: skip
SETTLE = Operation[SettleWork](
    name="work.settle", method="POST", path=f"{_WORK}/settle",
    summary="Record the outcome of an attempt at a local step",
    responses=(replies(SettledView, "What became of it. A repeated call changes nothing."),),
    scope=Scope.CONTROL,
    body_right=_WORKS, body=SettleWork, body_required=True,
)  # fmt: skip
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


class LocalWork(Noun):
    """Claims and settles the local steps of a graph, which its submitter carries out itself.

    The client needs the `work_token` of the session, or a token with the scope control.
    """

    @Op
    def claim_work(self, session: str, claim: ClaimWork) -> Ask[WorkView]:
        """Claim a session's next local step to run it here; waits up to `wait_s`, no grant if none.

        A local step is one whose tool runs in the process that submitted the session.
        """
        return reads(WorkView, _call(CLAIM, session, claim, waits_s=claim.wait_s))

    @Op
    def beat_work(self, session: str, attempt: BeatWork) -> Ask[BeatView]:
        """Extend the lease of an attempt; the reply says whether it may continue."""
        return reads(BeatView, _call(BEAT, session, attempt))

    @Op
    def settle_work(self, session: str, outcome: SettleWork) -> Ask[SettledView]:
        """Record the outcome of an attempt once; returns what became of it and the status."""
        return reads(SettledView, _call(SETTLE, session, outcome))


def _call(operation: Operation[Any], session: str, body: BaseModel, waits_s: float = 0.0) -> Call:
    content = body.model_dump_json().encode()
    return request(operation, session, content=content, waits_s=waits_s)


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
