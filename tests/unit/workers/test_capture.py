"""Output in bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from workers.processes import output
from workers.processes.output import Capture, Captured


def test_a_character_that_the_cut_halves_is_left_out(tmp_path) -> None:
    taken = Capture(tmp_path / "out")
    taken.write(b"x" + "\N{EURO SIGN}".encode() * 40_000)
    text = taken.close().text
    assert "\N{REPLACEMENT CHARACTER}" not in text
    assert set(text.partition("\n")[0]) == {"x", "\N{EURO SIGN}"}


def test_a_full_disk_costs_the_file_and_not_the_text(tmp_path) -> None:
    taken = Capture(tmp_path / "missing" / "out")
    taken.write(b"a" * 100_000)
    captured = taken.close()
    assert captured.spill is None
    assert captured.text.startswith("a")


def test_the_whole_is_read_back_from_its_end(tmp_path) -> None:
    taken = Capture(tmp_path / "out")
    for number in range(30_000):
        taken.write(b"%d\n" % number)
    captured = taken.close()
    assert captured.whole(10**9).split() == [str(number) for number in range(30_000)]
    assert captured.whole(6) == "29999\n"
    assert Captured(text="short").whole(2) == "short"


def test_progress_bars_leave_their_last_frame_and_the_room_to_other_lines(tmp_path) -> None:
    taken = Capture(tmp_path / "out")
    frames = [b"\r\x1b[2K\x1b[32m%6d of 20000\x1b[0m" % number for number in range(20_000)]
    chunks = [b"first\r\n", *frames, b"\r\nValueError: no\n"]
    for chunk in chunks:
        taken.write(chunk)
    captured = taken.close()
    assert captured.text == "first\r\n 19999 of 20000\r\nValueError: no\n"
    assert captured.spill is not None
    assert captured.spill.read_bytes() == b"".join(chunks)
    assert captured.whole(10_000) == " 19999 of 20000\r\nValueError: no\n"


def test_long_line_without_an_end_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(output, "LINE_BYTES", 100)
    taken = Capture(tmp_path / "out")
    for _ in range(1000):
        taken.write(b"abcdefghij")
        assert len(taken._line) <= 110
    assert taken.close().text == "abcdefghij" * 1000


@given(chunks=st.lists(st.binary(max_size=40), max_size=40))
def test_however_it_is_chunked_the_text_is_the_same(tmp_path_factory, chunks) -> None:
    folder = tmp_path_factory.mktemp("capture")
    before = output.HEAD_BYTES, output.TAIL_BYTES
    output.HEAD_BYTES, output.TAIL_BYTES = 16, 16
    try:
        one, many = Capture(folder / "one"), Capture(folder / "many")
        one.write(b"".join(chunks))
        for chunk in chunks:
            many.write(chunk)
        whole, parts = one.close(), many.close()
    finally:
        output.HEAD_BYTES, output.TAIL_BYTES = before
    assert (whole.text, whole.size) == (parts.text, parts.size)
    if parts.spill is not None:
        assert parts.spill.read_bytes() == b"".join(chunks)
