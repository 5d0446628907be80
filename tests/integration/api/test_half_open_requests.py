"""Clients that send half a request, or read no response, hold no thread of the API."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2
import pytest

from tests.integration.api.test_api_process import TOKEN, running
from tests.waiting import wait_until

HALF_OPEN = 200
#: The longest time that a half-sent request may live: the deadline of a body, and a few seconds.
LIFETIME_S = 30.0
AUTHORIZED = f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
#: Requests that each slow reader sends: their responses are larger than the kernel's buffers.
REQUESTS = 20
BEARER = {"Authorization": f"Bearer {TOKEN}"}
KINDS = {
    "silent": b"",
    "half a head": b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\nX-Half: ",
    "head without its end": b"GET /readyz HTTP/1.1\r\nHost: [::1]\r\n",
    "half a body": b"POST /v1/sessions HTTP/1.1\r\nHost: [::1]\r\n"
    + AUTHORIZED.encode()
    + b'Content-Length: 1000\r\n\r\n{"kind":',
    "half a body without a token": b"POST /v1/sessions HTTP/1.1\r\nHost: [::1]\r\n"
    b'Content-Length: 1000\r\n\r\n{"kind":',
    "half a chunk": b"POST /v1/sessions HTTP/1.1\r\nHost: [::1]\r\n"
    + AUTHORIZED.encode()
    + b'Transfer-Encoding: chunked\r\n\r\n64\r\n{"kind":',
    "an expected body": b"POST /v1/sessions HTTP/1.1\r\nHost: [::1]\r\n"
    + AUTHORIZED.encode()
    + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n",
    "half a TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "half of a second request": b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n"
    b"GET /readyz HTTP/1.1\r\n",
    "a response that is not read": b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\n"
    b"Connection: close\r\n\r\n",
}
#: Kinds to which one byte more is sent every second.
DRIPPING = {"half a head", "half a body", "half a chunk"}


class HalfOpen:
    """Connections that never send the rest of their request."""

    def __init__(self, address: tuple[str, int], count: int) -> None:
        kinds = list(KINDS)
        self._over = threading.Event()
        self._open = [
            (kinds[n % len(kinds)], socket.create_connection(address, timeout=10))
            for n in range(count)
        ]
        for kind, connection in self._open:
            connection.sendall(KINDS[kind])
        self._dripper = threading.Thread(target=self._drip)
        self._dripper.start()

    def _drip(self) -> None:
        while not self._over.wait(1.0):
            for kind, connection in self._open:
                if kind in DRIPPING:
                    try:
                        connection.send(b"x")
                    except OSError:
                        continue

    def still_open(self) -> Counter[str]:
        """How many of each kind the server has not closed yet."""
        return Counter(kind for kind, connection in self._open if not is_closed(connection))

    def close(self) -> None:
        self._over.set()
        self._dripper.join()
        for _, connection in self._open:
            connection.close()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed; what it sent before is thrown away."""
    connection.settimeout(0)
    try:
        while connection.recv(65536):
            pass
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


@contextmanager
def half_open(url: str, count: int = HALF_OPEN) -> Iterator[HalfOpen]:
    parts = httpx2.URL(url)
    clients = HalfOpen((parts.host, parts.port or 80), count)
    try:
        yield clients
    finally:
        clients.close()


@pytest.fixture
def url(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[str]:
    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        yield url


def seconds_of(call: Callable[[], httpx2.Response]) -> float:
    """How long this call took; fails where the response is not 200."""
    begin = time.monotonic()
    response = call()
    assert response.status_code == 200, response.text
    return time.monotonic() - begin


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_two_hundred_half_open_requests_delay_no_call_and_are_closed(url):
    slowest: dict[str, float] = {}
    with half_open(url) as clients:
        give_up = time.monotonic() + LIFETIME_S
        while (left := clients.still_open()) and time.monotonic() < give_up:
            for path in ("/healthz", "/readyz", "/v1/sessions"):
                # A new connection each time, as a prober opens them.
                took = seconds_of(lambda: httpx2.get(url + path, headers=BEARER, timeout=20))  # noqa: B023
                slowest[path] = max(slowest.get(path, 0), took)
            assert all(took < 1.0 for took in slowest.values()), (slowest, left)
        assert not left


def connect(url: str, *, receive_buffer: int | None = None) -> socket.socket:
    parts = httpx2.URL(url)
    connection = socket.socket()
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.settimeout(10)
    connection.connect((parts.host, parts.port or 80))
    return connection


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_clients_that_read_no_response_delay_no_call(tmp_path, store_url, broker_url):
    """Each asks for more than the kernel's buffers take, so that the rest has to wait."""
    environment = {"LEADHAND_BROKER_URL": broker_url, "LEADHAND_API_THREADS": "24"}
    with running(tmp_path, store_url, **environment) as url:
        read_nothing(url, clients=30)


def read_nothing(url: str, *, clients: int) -> None:
    response = httpx2.get(f"{url}/openapi.json", headers=BEARER, timeout=30)
    document = response.raise_for_status().content
    request = f"GET /openapi.json HTTP/1.1\r\nHost: [::1]\r\n{AUTHORIZED}\r\n".encode()
    readers = [connect(url, receive_buffer=4096) for _ in range(clients)]
    readers.append(connect(url, receive_buffer=100_000))
    try:
        for reader in readers:
            reader.sendall(request * REQUESTS)
        # Once the buffers are full, no response can be completed and all calls are quick again.
        wait_until(lambda: is_quick(url), timeout=40)
        received = b""
        while received.count(document) < REQUESTS:  # who begins to read receives everything
            piece = readers[-1].recv(1 << 20)
            assert piece
            received += piece
    finally:
        for reader in readers:
            reader.close()


def is_quick(url: str) -> bool:
    """Whether each of these calls is answered within a second."""
    try:
        for path in ("/healthz", "/readyz", "/v1/sessions"):
            httpx2.get(url + path, headers=BEARER, timeout=1.0).raise_for_status()
    except httpx2.TransportError:
        return False
    return True


def exchange(url: str, *pieces: bytes) -> bytes:
    """Send these pieces one by one; returns all that comes until the server closes."""
    with connect(url) as connection:
        connection.settimeout(60)  # millions of chunks take seconds, and more on a busy machine
        with suppress(BrokenPipeError, ConnectionResetError):  # it may be refused halfway
            for piece in pieces:
                connection.sendall(piece)
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received


@pytest.mark.slow
def test_requests_that_arrive_in_one_piece_or_byte_by_byte_are_answered_in_order(url):
    first = b"GET /healthz HTTP/1.1\r\nHost: [::1]\r\n\r\n"
    chunked = (
        b"POST /v1/sessions HTTP/1.1\r\nHost: [::1]\r\n"
        + AUTHORIZED.encode()
        + b'Transfer-Encoding: chunked\r\n\r\n5\r\n{"kin\r\n8;a=b\r\nd": "x"}\r\n0\r\nA: b\r\n\r\n'
    )
    last = b"GET /readyz HTTP/1.1\r\nHost: [::1]\r\nConnection: close\r\n\r\n"
    whole = first + chunked + last
    for pieces in ([whole], [bytes([one]) for one in whole]):
        received = exchange(url, *pieces)
        statuses = re.findall(rb"HTTP/1\.1 ([0-9]{3})", received)
        assert statuses == [b"200", b"422", b"200"], received


@pytest.mark.slow
def test_an_expected_body_is_asked_for_once(url):
    head = KINDS["an expected body"].replace(b"1000", b"2\r\nConnection: close")
    with connect(url) as connection:
        connection.sendall(head)
        assert connection.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(b"{}")
        received = connection.recv(65536)
    assert received.startswith(b"HTTP/1.1 422 "), received


@pytest.mark.slow
def test_a_head_that_never_ends_is_refused(url):
    received = exchange(url, b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 20_000)
    assert received.startswith(b"HTTP/1.1 431 "), received
    assert b"application/problem+json" in received


def test_more_connections_than_a_process_keeps_leave_room_for_a_new_one(url):
    """The oldest half-sent request makes room for the newest connection."""
    kept = [connect(url) for _ in range(650)]
    try:
        for connection in kept:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
        assert seconds_of(lambda: httpx2.get(f"{url}/healthz")) < 1.0
        wait_until(lambda: is_closed(kept[0]))
        assert not is_closed(kept[-1])
    finally:
        for connection in kept:
            connection.close()
