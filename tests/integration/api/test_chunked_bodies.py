"""A body in chunks is refused for what is wrong with it, as a body of known length is."""

from __future__ import annotations

import json

import pytest

from api.requests import MAX_BODY_BYTES
from tests.integration.api.test_half_open_requests import AUTHORIZED, exchange, url

__all__ = ["url"]

POST = (
    f"POST /v1/sessions HTTP/1.1\r\nHost: localhost\r\n{AUTHORIZED}Connection: close\r\n".encode()
)
HEAD = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def chunk(text: bytes) -> bytes:
    return f"{len(text):x}\r\n".encode() + text + b"\r\n"


TOO_LONG = b"x" * (MAX_BODY_BYTES + 1)
CASES = {
    "no size": (HEAD + b"zz\r\nabc\r\n0\r\n\r\n", 400),
    "a negative size": (HEAD + b"-1\r\nabc\r\n0\r\n\r\n", 400),
    "bytes behind a chunk": (HEAD + b"2\r\n{}xx\r\n0\r\n\r\n", 400),
    "a bad extension": (HEAD + b"2;\x01\r\n{}\r\n0\r\n\r\n", 400),
    "a bad trailer": (HEAD + b"2\r\n{}\r\n0\r\nnonsense\r\n\r\n", 400),
    "one long chunk": (HEAD + chunk(TOO_LONG) + b"0\r\n\r\n", 413),
    "many chunks": (HEAD + chunk(b"x" * 60_000) * 80 + b"0\r\n\r\n", 413),
    "a huge size": (HEAD + b"7fffffff\r\n" + TOO_LONG + b"x" * 4096, 413),
    "a known length": (
        POST + f"Content-Length: {len(TOO_LONG)}\r\n\r\n".encode() + TOO_LONG,
        413,
    ),
    "the longest body": (
        HEAD + chunk(b"[" + b" " * (MAX_BODY_BYTES - 2) + b"]") + b"0\r\n\r\n",
        422,
    ),
}


def test_a_chunked_body_that_cannot_be_read_is_a_problem_of_its_own_kind(url):
    seen = {}
    for name, (request, _) in CASES.items():
        head, _, body = exchange(url, request).partition(b"\r\n\r\n")
        assert b"application/problem+json" in head, (name, head)
        assert json.loads(body)["status"] == int(head[9:12])
        seen[name] = int(head[9:12])
    assert seen == {name: status for name, (_, status) in CASES.items()}


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_tiny_chunks_are_refused_once_they_are_too_long(url):
    head = exchange(url, HEAD + b"1\r\nx\r\n" * (MAX_BODY_BYTES // 2)).partition(b"\r\n\r\n")[0]
    assert int(head[9:12]) == 413
