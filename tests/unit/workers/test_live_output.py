"""Live output waits in bounded memory, and dropped lines are counted."""

from __future__ import annotations

import pytest

from workers.live_output import CHUNK_BYTES, WAITING_BYTES, LiveOutput, Part


def text_of(parts: list[Part]) -> str:
    return "".join(part.text for part in parts)


def test_streams_keep_the_order_in_which_they_were_read() -> None:
    output = LiveOutput()
    output.write("stdout", b"one\n")
    output.write("stderr", b"two\n")
    output.write("stdout", b"three\n")
    parts = output.take(0.0)
    assert [(part.seq, part.stream, part.text) for part in parts] == [
        (1, "stdout", "one\n"),
        (2, "stderr", "two\n"),
        (3, "stdout", "three\n"),
    ]


def test_nothing_is_opened_before_the_first_byte() -> None:
    opened: list[LiveOutput] = []
    output = LiveOutput(opened.append)
    assert opened == []
    output.write("stdout", b"x")
    output.write("stdout", b"y")
    assert opened == [output]


def test_a_flood_is_bounded_and_every_byte_is_shown_or_counted() -> None:
    output = LiveOutput()
    line = b"0123456789abcdef\n"
    written = shown = dropped = 0
    for _ in range(50):
        for _ in range(100):
            output.write("stdout", line * 100)
            written += len(line) * 100
        assert output._size <= WAITING_BYTES
        parts = output.take(0.0)
        assert sum(len(part.text) for part in parts) <= CHUNK_BYTES
        shown += len(text_of(parts))
        dropped += sum(part.dropped for part in parts)
    output.end()
    last = output.take(0.0)
    shown += len(text_of(last))
    dropped += sum(part.dropped for part in last) + sum(output._unsent.values())
    assert shown + dropped == written
    assert shown > 0


def test_parts_that_could_not_be_published_are_counted_before_the_next() -> None:
    output = LiveOutput()
    output.write("stdout", b"lost\n")
    output.put_back(output.take(0.0))
    output.write("stdout", b"kept\n")
    assert [(part.text, part.dropped) for part in output.take(0.0)] == [("kept\n", 5)]


def test_the_end_completes_an_unfinished_line() -> None:
    output = LiveOutput()
    output.write("stdout", b"no newline")
    assert output.take(0.0) == []
    output.end()
    assert text_of(output.take(0.0)) == "no newline"


@pytest.mark.parametrize("dropped", [11, 20, 31, 5_000])
def test_a_key_whose_beginning_was_dropped_is_not_shown(dropped: int) -> None:
    output = LiveOutput()
    first, last = b"-----BEGIN RSA PRIVATE KEY-----\n", b"-----END RSA PRIVATE KEY-----\ndone\n"
    size = WAITING_BYTES + dropped - len(first) - len(last)
    output.write("stdout", first + b"MIIEowIBAAKCAQEAx1c2Vj\n" * (size // 23) + b"A" * (size % 23))
    output.write("stdout", last)
    assert text_of(output.take(0.0)).strip() == "done"
