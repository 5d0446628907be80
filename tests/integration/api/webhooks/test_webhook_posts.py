"""One delivery over the wire: timeouts, addresses, certificates and replies."""

from __future__ import annotations

import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.webhooks import post
from tests.receiver import Receiver, receiver


@pytest.fixture
def at() -> Iterator[Receiver]:
    with receiver() as receiving:
        yield receiving


def test_slow_receiver_times_out_after_the_limit_of_one_delivery(at):
    at.answers.clear()
    began = time.monotonic()
    posted = post(at.url, b"{}", {}, hosts=[at.host], total_s=0.3)
    assert (posted.arrived, posted.why) == (False, "no response within 0.3 s")
    assert time.monotonic() - began < 3


def test_a_receiver_that_answers_byte_by_byte_is_not_waited_for_longer(at):
    at.drips = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 100
    assert post(at.url, b"{}", {}, hosts=[at.host], total_s=0.4).why == "no response within 0.4 s"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", "answered 204"),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 202 A\r\n\r\n", "answered 202"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\n\r\n", "answered 302"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "the response is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "the response head is longer than 65536 bytes"),
        (b"", "the connection was closed before a response arrived"),
        (b"HTTP/1.1 200", "the connection was closed before a response arrived"),
    ],
)
def test_an_answer_is_read_as_far_as_its_status(answer, why):
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"127.0.0.1:{server.getsockname()[1]}"
        with Answering(server, answer):
            assert post(f"http://{host}/", b"{}", {}, hosts=[host]).why == why


def test_host_name_that_resolves_to_a_local_address_is_refused(at, monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", Resolver("127.0.0.1"))
    posted = post("https://hooks.example/", b"{}", {})
    assert posted.why == "hooks.example is not, or not only, a public address"
    monkeypatch.setattr(socket, "getaddrinfo", Resolver("1.1.1.1", "10.0.0.1"))
    assert not post("https://hooks.example/", b"{}", {}).arrived


def test_a_name_is_resolved_once_and_the_certificate_must_be_its_own(tmp_path, monkeypatch):
    server, client = certificate(tmp_path, "hooks.test")
    names: list[str | None] = []
    server.sni_callback = lambda _socket, name, _context: names.append(name)
    with receiver(server) as at:
        port = at.host.rpartition(":")[2]
        calls = Resolver("127.0.0.1")
        monkeypatch.setattr(socket, "getaddrinfo", calls)
        hosts = ["hooks.test", "other.test"]
        assert post(f"https://hooks.test:{port}/x", b"{}", {}, hosts=hosts, context=client).arrived
        assert calls.names == ["hooks.test"]
        assert names == ["hooks.test"]
        assert at.received[0].headers["Host"] == f"hooks.test:{port}"
        other = post(f"https://other.test:{port}/x", b"{}", {}, hosts=hosts, context=client)
        assert "certificate" in other.why.lower()
        stranger = post(f"https://hooks.test:{port}/x", b"{}", {}, hosts=hosts)
        assert "certificate" in stranger.why.lower()
        assert len(at.received) == 1


def test_delivery_ignores_the_proxies_of_the_environment(at, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert post(at.url, b"{}", {}, hosts=[at.host]).arrived


class Answering:
    """Answers one connection with these bytes, and closes it."""

    def __init__(self, server: socket.socket, answer: bytes) -> None:
        self._server, self._answer = server, answer
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _run(self) -> None:
        connection, _ = self._server.accept()
        with connection:
            heard = b""
            while not heard.endswith(b"{}"):
                heard += connection.recv(4096)
            with suppress(OSError):  # the client may have closed the connection
                connection.sendall(self._answer)


class Resolver:
    """Stands in for the resolver: every name is these addresses."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses
        self.names: list[str] = []
        self._real = socket.getaddrinfo

    def __call__(self, host, port, *rest, **more):
        if host in ("127.0.0.1", "::1"):
            return self._real(host, port, *rest, **more)
        self.names.append(host)
        kind = socket.SOCK_STREAM
        return [(socket.AF_INET, kind, 6, "", (address, port)) for address in self._addresses]


def certificate(folder: Path, host: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """What serves as the host, and what knows it."""
    key, cert = folder / "key.pem", folder / "cert.pem"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", f"/CN={host}", "-addext",
            f"subjectAltName=DNS:{host}", "-keyout", str(key), "-out", str(cert),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(cert, key)
    return server, ssl.create_default_context(cafile=str(cert))
