"""Uploads to an API that refuses them, is another program, or stays away."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import TCPServer

import pytest

from app.core.addresses import SessionRef
from leadhand.errors import ArtifactsFull
from workers import artifacts as remote
from workers.artifacts import ArtifactsAway, Patience, RemoteArtifacts

REF = SessionRef("ab12cd34", "ab12cd34")


class _Handler(BaseHTTPRequestHandler):
    status, body = 200, b""

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_args: object) -> None: ...


@pytest.fixture
def server() -> Iterator[TCPServer]:
    with TCPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {})) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "value"
    path.write_bytes(b"x")
    return path


def answering(server: TCPServer, status: int, body: bytes) -> RemoteArtifacts:
    vars_of: type[_Handler] = server.RequestHandlerClass  # type: ignore[assignment]
    vars_of.status, vars_of.body = status, body
    return RemoteArtifacts(f"http://127.0.0.1:{server.server_address[1]}", lambda: "token")


PROBLEM = json.dumps({"detail": "the token is void"}).encode()
FOREIGN = "not one of Leadhand's API"


@pytest.mark.parametrize(
    ("status", "body", "why"),
    [
        (401, PROBLEM, "HTTP 401, the token is void"),
        (403, b"<html>", f"HTTP 403, .*{FOREIGN}"),
        (404, b"[1]", f"HTTP 404, .*{FOREIGN}"),
        (413, b"<html>too large</html>", f"HTTP 413, .*{FOREIGN}"),
        (507, b"\xff", f"HTTP 507, .*{FOREIGN}"),
        (302, b"", f"HTTP 302, .*{FOREIGN}"),
        (200, b"<html>", f"HTTP 200, .*{FOREIGN}"),
        (200, b"{}", f"HTTP 200, .*{FOREIGN}"),
    ],
)
def test_refused_upload_names_url_and_status(
    server: TCPServer, file: Path, status: int, body: bytes, why: str
) -> None:
    store = answering(server, status, body)
    with pytest.raises(ArtifactsFull, match=rf"the API at http://127\.0\.0\.1:\d+ .*{why}"):
        store.put(REF, "0" * 64, file)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_upload_is_repeated_while_the_api_is_away_but_not_for_ever(
    server: TCPServer, file: Path, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Patience(lambda: answering(server, status, b"<html>"))
    for _ in range(2):
        with pytest.raises(ArtifactsAway, match=f"HTTP {status}"):
            store.put(REF, "0" * 64, file)
    monkeypatch.setattr(remote, "PATIENCE_S", 0.0)
    with pytest.raises(ArtifactsFull, match=rf"127\.0\.0\.1.*HTTP {status}, for \d+ s"):
        store.put(REF, "0" * 64, file)


def test_patience_begins_anew_after_a_success(server: TCPServer, file: Path) -> None:
    store = Patience(lambda: answering(server, 503, b""))
    with pytest.raises(ArtifactsAway):
        store.put(REF, "0" * 64, file)
    store._open = lambda: answering(server, 200, b'{"complete": true}')
    store.put(REF, "0" * 64, file)
    assert store._away_since is None
