"""Uploads artifacts to the API and reads them there, with a token of the attempt."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pydantic import JsonValue

from app.core.addresses import SessionRef
from app.core.records import Grant
from app.security import signatures
from leadhand.contract.work import PART_BYTES
from leadhand.errors import ArtifactsFull, ArtifactUnknown, StoreAway

if TYPE_CHECKING:
    import httpx2

#: Of the worker's own token: bodies have no token with the second.
SCOPES = ("read", "artifacts")
_TIMEOUT_S = 30.0
#: For so long an upload is repeated while the API is away.
PATIENCE_S = 60.0
#: Below 500, the statuses at which another try may help; above, those at which it cannot.
_PASSING, _LASTING = frozenset({408, 425, 429}), frozenset({501, 505, 507, 511})


class ArtifactsAway(StoreAway, narrow=True):
    """The API, which stores artifacts, does not answer; a worker tries again."""

    def __init__(self, url: str, status: int | None = None) -> None:
        text = "" if status is None else f": HTTP {status}"
        super().__init__(url, logged=f"the API at {url} does not answer{text}")


class ArtifactStore(Protocol):
    """Where an attempt stores artifacts."""

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        """Store a file under its digest. Raises ArtifactsFull, StoreAway."""


class RemoteArtifacts(NamedTuple):
    """The artifacts of the API at a URL, as one attempt may use them. Raises StoreAway."""

    url: str
    #: Creates the token: most attempts open the artifacts and read none.
    mint: Callable[[], str]

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        """Upload a file to the API in parts. Raises ArtifactsFull, with the API's reason."""
        size = file.stat().st_size
        with file.open("rb") as source:
            for at in range(0, size, PART_BYTES):
                data = base64.b64encode(source.read(PART_BYTES)).decode()
                body = json.dumps({"at": at, "size": size, "data": data})
                answer = self._send("PUT", _path(ref, digest), content=body)
                if _is_refused(answer.status_code):
                    raise ArtifactsFull(self._trouble(answer))
                self._check(answer)
                if self._is_complete(answer):  # also if another attempt has stored it
                    return

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """Download all bytes of an artifact. Raises ArtifactUnknown."""
        found = bytearray()
        while len(found) < size:
            path = f"{_path(ref, digest)}?at={len(found)}&limit={PART_BYTES}"
            answer = self._send("GET", path)
            if answer.status_code == 404 or (answer.is_success and not answer.content):
                raise ArtifactUnknown(ref.id, digest)
            self._check(answer)
            found += answer.content
        return bytes(found)

    def _send(self, method: str, path: str, *, content: str | None = None) -> httpx2.Response:
        import httpx2

        try:
            return httpx2.request(
                method,
                self.url + path,
                content=content,
                headers={
                    "Authorization": f"Bearer {self.mint()}",
                    "Content-Type": "application/json",
                },
                timeout=_TIMEOUT_S,
                trust_env=not _is_local(self.url),
            )
        except httpx2.TransportError as error:
            raise ArtifactsAway(self.url) from error

    def _check(self, answer: httpx2.Response) -> None:
        """Raise ArtifactsAway for any error: a lost attempt is noticed by its heartbeat."""
        if not answer.is_success:
            raise ArtifactsAway(self.url, answer.status_code)

    def _is_complete(self, answer: httpx2.Response) -> bool:
        """Whether the artifact is complete. Raises ArtifactsFull for what is no answer to that."""
        found = _fields(answer).get("complete")
        if not isinstance(found, bool):
            raise ArtifactsFull(self._trouble(answer))
        return found

    def _trouble(self, answer: httpx2.Response) -> str:
        why = _fields(answer).get("detail") or "the response is not one of Leadhand's API"
        return f"the API at {self.url} does not store an artifact: HTTP {answer.status_code}, {why}"


class Patience:
    """Stores the artifacts of one attempt; gives up once the API has been away for long."""

    def __init__(self, open_store: Callable[[], ArtifactStore]) -> None:
        self._open = open_store
        self._away_since: float | None = None

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        """Store a file as an artifact. Raises StoreAway; ArtifactsFull if the API is away long."""
        try:
            self._open().put(ref, digest, file)
        except ArtifactsAway as error:
            now = time.monotonic()
            self._away_since = self._away_since or now
            if now - self._away_since < PATIENCE_S:
                raise
            raise ArtifactsFull(f"{error}, for {now - self._away_since:.0f} s") from error
        self._away_since = None


def open_remote(url: str, secret: str, ref: SessionRef, grant: Grant) -> RemoteArtifacts:
    """Returns a client for the artifacts of the API, with the token of one attempt."""
    caller = signatures.Caller(ref.id, grant.address, grant.fence, SCOPES)
    return RemoteArtifacts(url, partial(signatures.mint, caller, secret=secret))


def _path(ref: SessionRef, digest: str) -> str:
    return f"/v1/sessions/{ref.id}/artifacts/{digest}"


def _is_refused(status: int) -> bool:
    """Whether another try cannot help.

    >>> [_is_refused(status) for status in (200, 302, 403, 429, 503, 507)]
    [False, True, True, False, False, True]
    """
    return (300 <= status < 500 and status not in _PASSING) or status in _LASTING


def _fields(answer: httpx2.Response) -> dict[str, JsonValue]:
    """The JSON object of a response; empty for any other body."""
    try:
        found: JsonValue = answer.json()
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_local(url: str) -> bool:
    import httpx2

    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
