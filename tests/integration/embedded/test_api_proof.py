"""No token is sent to a program that holds the API's port and does not know the key."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from leadhand.local.api_probe import LocalApi, proves_itself
from leadhand.local.connect import Connection
from leadhand.local.errors import StackElsewhere
from tests.integration.embedded.test_embedded import (  # noqa: F401 - fixtures
    Join,
    folder,
    join,
    run_of,
    tree,
)
from tests.processes import kill

pytestmark = pytest.mark.no_cover


class Impostor(BaseHTTPRequestHandler):
    """Answers like an API, and passes nonces on to the real one if it knows its port."""

    real = 0
    seen: list[dict[str, str]]

    def do_GET(self) -> None:
        self.seen.append(dict(self.headers))
        proof = self._ask_real() if self.real else "0" * 64
        self.send_response(200)
        self.send_header("Leadhand-Proof", proof)
        self.end_headers()
        self.wfile.write(b'{"items": []}')

    def _ask_real(self) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.real)
        connection.request("GET", "/healthz", headers={"Leadhand-Nonce": self._nonce})
        proof = connection.getresponse().headers["Leadhand-Proof"]
        connection.close()
        assert len(proof) == 64
        return proof

    @property
    def _nonce(self) -> str:
        return self.headers["Leadhand-Nonce"] or "0" * 32

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def impostor(real: int = 0) -> Iterator[tuple[int, list[dict[str, str]]]]:
    handler = type("One", (Impostor,), {"real": real, "seen": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1], handler.seen  # type: ignore[attr-defined]
    server.shutdown()
    server.server_close()


def port_of(connection: Connection) -> int:
    return int(connection.url.rpartition(":")[2])


@pytest.mark.parametrize("relays", [False, True])
def test_a_program_on_the_port_gets_no_token(join: Join, relays: bool) -> None:  # noqa: F811
    connection = join()
    run = run_of(connection.home)
    with impostor(port_of(connection) if relays else 0) as (port, seen):
        moved = run | {"url": f"http://127.0.0.1:{port}"}
        (connection.home / "run.json").write_text(json.dumps(moved))
        with pytest.raises(StackElsewhere, match="not their API; `leadhand restart`"):
            join()
        key = str(run["proof_key"])
        probe = LocalApi(port, connection.token, proof_key=key)
        for ask in (probe.is_ready, probe.has_live_session):
            with pytest.raises(ConnectionError, match="held by another program"):
                ask()
    assert seen
    assert connection.token not in str(seen)
    assert key not in str(seen)
    (connection.home / "run.json").write_text(json.dumps(run))
    assert proves_itself(port_of(connection), key)
    assert join().url == connection.url


def test_services_start_on_another_port_while_theirs_is_held(join: Join) -> None:  # noqa: F811
    before = join()
    kill(tree(before.home))
    before.close()
    with socket.create_server(("127.0.0.1", port_of(before))):
        assert join().url != before.url
