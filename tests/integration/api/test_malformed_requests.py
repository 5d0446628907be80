"""A request that is no HTTP/1.1 is refused with a problem, like every other request."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.integration.api.test_api_process import running
from tests.integration.api.test_half_open_requests import exchange

HOST = b"Host: a\r\nConnection: close\r\n"
CASES = {
    "no request line": (b"nonsense\r\n\r\n", 400),
    "an unknown version": (b"GET / HTTP/9.9\r\n" + HOST + b"\r\n", 400),
    "a bad method": (b"G\x01T / HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "a header without a name": (b"GET / HTTP/1.1\r\n: b\r\n\r\n", 400),
    "a folded header": (b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n", 400),
    "a lone <script> in a header": (b"GET / HTTP/1.1\r\n<script>: b\r\n\r\n", 400),
    "two lengths": (
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n",
        400,
    ),
    "an unknown coding": (b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: x\r\n\r\n", 501),
    "a long line": (b"GET /" + b"a" * 9_000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", 414),
    "no host": (b"GET /healthz HTTP/1.1\r\nConnection: close\r\n\r\n", 400),
    "two hosts": (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nHost: a\r\n\r\n", 400),
    "bytes of TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
}


@pytest.fixture(scope="module")
def url(module_store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One API for all of these requests, which leave nothing behind."""
    with running(tmp_path_factory.mktemp("api"), module_store_url) as url:
        yield url


@pytest.mark.parametrize("name", CASES)
def test_request_that_cannot_be_parsed_is_refused_with_a_problem(url, name: str) -> None:
    request, status = CASES[name]
    head, _, body = exchange(url, request).partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert int(head[9:12]) == status == problem["status"], (head, body)
    assert b"Content-Type: application/problem+json" in head
    assert len(problem["detail"]) < 300
    assert (problem.get("type") == "urn:leadhand:problem:malformed") is (status == 400)


@pytest.mark.parametrize(
    "header", [b"SCRIPT_NAME: /x", b"Script-Name: /x", b"PATH_INFO: /x", b"X-Script-Name: /x"]
)
def test_a_client_names_no_path_of_the_program(url, header: bytes) -> None:
    request = (
        b"GET /healthz HTTP/1.1\r\nConnection: close\r\nHost: localhost\r\n" + header + b"\r\n\r\n"
    )
    assert exchange(url, request)[9:12] == b"200"


def test_a_request_of_http_1_0_needs_no_host(url) -> None:
    assert exchange(url, b"GET /healthz HTTP/1.0\r\n\r\n")[9:12] == b"200"
