"""The calls about artifacts (pure)."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import NamedTuple

import httpx2

from leadhand.client.calls import Call
from leadhand.client.paths import session_path
from leadhand.errors import AnswerUnreadable, local_error
from leadhand.models.problems import Kind

#: Bytes in one part of an upload or download.
PART_BYTES = 2 * 1024 * 1024


class Piece(NamedTuple):
    """A part of an artifact, and the size of the whole."""

    data: bytes
    size: int


def listing(session: str, limit: int | None, cursor: str | None) -> Call:
    """Builds the request that lists a page of a session's artifacts (long results and outputs)."""
    given = {"limit": limit, "cursor": cursor}
    params = {name: value for name, value in given.items() if value is not None}
    return Call("GET", session_path(session, "artifacts"), params=params)


def part(session: str, digest: str, at: int) -> Call:
    """Builds the request that reads up to 2 MiB of an artifact, from the byte position `at`."""
    return Call("GET", _path(session, digest), params={"at": at, "limit": PART_BYTES})


def piece_of(response: httpx2.Response) -> Piece:
    """Returns a response's bytes and the size of the whole artifact. Raises AnswerUnreadable.

    The size is that in the Content-Range header.
    """
    _, _, size = response.headers.get("Content-Range", "").partition("/")
    if not size.isdecimal():
        raise AnswerUnreadable(str(response.url), response.status_code)
    return Piece(response.content, int(size))


def upload(session: str, data: bytes, at: int) -> Call:
    """Builds the request that uploads the 2 MiB of an artifact's data that begin at `at`."""
    text = base64.b64encode(data[at : at + PART_BYTES]).decode()
    content = json.dumps({"at": at, "size": len(data), "data": text}).encode()
    digest = hashlib.sha256(data).hexdigest()
    return Call("PUT", _path(session, digest), content=content)


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
