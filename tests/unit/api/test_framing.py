"""Where a request ends does not depend on how its bytes were cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.wire.framing import MAX_HEAD_BYTES, Frame, Stage

POST = b"POST / HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
CASES = [
    (b"GET / HTTP/1.1\r\nHost: a\r\n", Stage.HEAD),
    (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Stage.WHOLE),
    (b"\x16\x03\x01\x02\x00", Stage.HEAD),
    (b"A: b\r\n" * (MAX_HEAD_BYTES // 6 + 1), Stage.HEAD_TOO_LONG),
    (POST + b"Content-Length: 3\r\n\r\nab", Stage.BODY),
    (POST + b"content-LENGTH:3\r\n\r\nabc", Stage.WHOLE),
    (POST + b"Content-Length: 0\r\n\r\n", Stage.WHOLE),
    (POST + b"Content-Length: 101\r\n\r\n", Stage.REFUSABLE),
    (POST + b"Content-Length: -1\r\n\r\n", Stage.REFUSABLE),
    (POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", Stage.REFUSABLE),
    (POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", Stage.REFUSABLE),
    (POST + b"Transfer-Encoding: gzip\r\n\r\n", Stage.REFUSABLE),
    (CHUNKED, Stage.BODY),
    (CHUNKED + b"3\r\nabc\r\n", Stage.BODY),
    (CHUNKED + b"3\r\nabc\r\n0\r\n", Stage.BODY),
    (CHUNKED + b"3\r\nabc\r\n0\r\n\r\n", Stage.WHOLE),
    (CHUNKED + b"3;x=y\r\nabc\r\n0\r\nA: b\r\n\r\n", Stage.WHOLE),
    (CHUNKED + b"3\r\nabc\r\n0\r\nA: b\r\n", Stage.BODY),
    (CHUNKED + b"zz\r\n", Stage.REFUSABLE),
    (CHUNKED + b"5" * 5000, Stage.REFUSABLE),
    (CHUNKED + b"65\r\n" + b"a" * 101, Stage.REFUSABLE),
    (CHUNKED + b"fff\r\n" + b"a" * 101, Stage.REFUSABLE),
    (CHUNKED + b"1\r\na\r\n" * 101, Stage.REFUSABLE),
    (CHUNKED + (b"1;" + b"x" * 90 + b"\r\na\r\n") * 90, Stage.BODY_TOO_LONG),
]


def stage_of(pieces: list[bytes]) -> Stage:
    """The stage after these pieces; a request is not added to once its stage is final."""
    frame = Frame(max_body=100)
    for piece in pieces:
        if frame.add(piece) not in (Stage.HEAD, Stage.BODY):
            break
    return frame.stage


@pytest.mark.parametrize(("request_bytes", "stage"), CASES)
def test_the_stage_of_a_request_in_one_piece_and_byte_by_byte(request_bytes, stage):
    assert stage_of([request_bytes]) is stage
    assert stage_of([bytes([one]) for one in request_bytes]) is stage


@given(st.sampled_from(CASES), st.lists(st.integers(1, 300), max_size=20))
def test_the_stage_of_a_request_that_is_cut_anywhere(case, sizes):
    request_bytes, stage = case
    pieces, at = [], 0
    for size in sizes:
        pieces.append(request_bytes[at : at + size])
        at += size
    assert stage_of([*pieces, request_bytes[at:]]) is stage


def test_what_follows_a_request_does_not_change_its_stage():
    for request_bytes, stage in CASES:
        if stage is Stage.WHOLE:
            assert stage_of([request_bytes + b"GET /next HTTP/1.1\r\n"]) is Stage.WHOLE


@pytest.mark.parametrize(
    ("line", "target"),
    [(b"GET /healthz?x=1 HTTP/1.1", b"/healthz"), (b"GET /a HTTP/1.1", b"/a"), (b"nonsense", b"")],
)
def test_the_target_is_the_path_of_the_request_line(line, target):
    frame = Frame(max_body=100)
    frame.add(line + b"\r\n\r\n")
    assert frame.target == target
