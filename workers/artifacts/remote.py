"""Uploads artifacts to the API and reads them there, with a token of the attempt."""

from __future__ import annotations

import base64
import json
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pydantic import JsonValue

from app.artifacts.errors import ArtifactsFull, ArtifactUnknown
from app.domain.artifacts import PART_BYTES
from app.domain.ids import SessionRef
from app.domain.records import Grant
from app.errors import StoreAway
from app.security import step_tokens

if TYPE_CHECKING:
    import httpx2

#: Of the worker's own token: bodies have no token with the second.
SCOPES = ("read", "artifacts")
_TIMEOUT_S = 30.0
#: Statuses at which another try cannot help.
_REFUSED = frozenset({409, 413, 422, 507})


class ApiAway(StoreAway):
    """The API does not answer; the worker tries again while it owns the attempt."""

    def __str__(self) -> str:
        return f"the API at {self.url} does not answer"


class RemoteArtifacts(NamedTuple):
    """The artifacts of the API at a URL, as one attempt may use them. Raises StoreAway."""

    url: str
    token: str

    def put(self, ref: SessionRef, digest: str, file: Path) -> None:
        """Upload a file in parts. Raises ArtifactsFull, with the API's reason."""
        size = file.stat().st_size
        with file.open("rb") as source:
            for at in range(0, size, PART_BYTES):
                data = base64.b64encode(source.read(PART_BYTES)).decode()
                body = json.dumps({"at": at, "size": size, "data": data})
                answer = self._send("PUT", _path(ref, digest), content=body)
                if answer.status_code in _REFUSED:
                    raise ArtifactsFull(_detail(answer))
                self._check(answer)
                if answer.json()["complete"]:  # also if another attempt has stored it
                    return

    def read(self, ref: SessionRef, digest: str, size: int) -> bytes:
        """All bytes of an artifact. Raises ArtifactUnknown."""
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
                    "Authorization": f"Bearer {self.token}",
                    "Content-Type": "application/json",
                },
                timeout=_TIMEOUT_S,
                trust_env=not _is_local(self.url),
            )
        except httpx2.TransportError as error:
            raise ApiAway(self.url) from error

    def _check(self, answer: httpx2.Response) -> None:
        """Raise ApiAway for any error: a lost attempt is noticed by its heartbeat."""
        if not answer.is_success:
            raise ApiAway(self.url)


def open_remote(url: str, secret: str, ref: SessionRef, grant: Grant) -> RemoteArtifacts:
    """The artifacts of the API, for one attempt."""
    caller = step_tokens.Caller(ref.id, grant.address, grant.fence, SCOPES)
    return RemoteArtifacts(url, step_tokens.mint(caller, secret=secret))


def _path(ref: SessionRef, digest: str) -> str:
    return f"/v1/sessions/{ref.id}/artifacts/{digest}"


def _detail(answer: httpx2.Response) -> str:
    problem: dict[str, JsonValue] = answer.json()
    return f"the API cannot store an artifact: {problem.get('detail') or answer.status_code}"


def _is_local(url: str) -> bool:
    import httpx2

    host = httpx2.URL(url).host
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
