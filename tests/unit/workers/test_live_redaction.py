"""Output that is shown while a body runs holds no secret, however it was cut into reads."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from app.redaction import without_keys
from workers.live_output import LINE_AGE_S, LINE_CHARACTERS, LINE_LIMIT, OVERLAP, LineRedactor

SECRET = "hunter2-hunter2"
TOKEN = " ghp_abcdefghij1234567890 "
PEM = (
    "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"
    + "MIIEowIBAAKCAQEAx1c2VjcmV0c2VjcmV0\n" * 20
    + "-----END RSA PRIVATE KEY-----\n"
)


PREFIXES = (
    "2026-11-22T10:00:{n:02}Z ", "2026-11-22 10:00:00,{n:03} INFO app.main: ", "[12:00:{n:02}] ",
    "app_1  | ", "Nov 22 10:00:{n:02} host proc[12]: ", "{n}: ",
)  # fmt: skip


def logged(prefix: str) -> list[str]:
    """The lines of a log that prints a key."""
    lines = ["begin", *PEM.replace("Proc-Type: 4,ENCRYPTED\n\n", "").splitlines(), "end"]
    return [f"{prefix.format(n=n)}{line}\n" for n, line in enumerate(lines)]


def published(chunks: list[bytes], *, times: list[float] | None = None) -> str:
    redactor = LineRedactor(frozenset({SECRET}))
    moments = times or [0.0] * len(chunks)
    texts = [redactor.feed(chunk, now=at) for chunk, at in zip(chunks, moments, strict=True)]
    return "".join(texts) + redactor.feed(b"", now=moments[-1] if moments else 0.0, final=True)


words = st.sampled_from(
    ["building", "é", "😀", "\n", " ", "ok\n", SECRET, TOKEN, "password=", "x" * 300, "\x1b[31m"]
)


@st.composite
def chunked(draw: st.DrawFn) -> tuple[str, list[bytes]]:
    """A text, and its bytes as they might be read."""
    text = "".join(draw(st.lists(words, max_size=30)))
    raw = text.encode()
    chunks: list[bytes] = []
    sizes = draw(st.lists(st.integers(1, 40), min_size=1, max_size=10))
    while raw:
        size = sizes[len(chunks) % len(sizes)]
        chunks.append(raw[:size])
        raw = raw[size:]
    return text, chunks


@given(chunked(), st.lists(st.sampled_from([0.0, 2.0]), min_size=1, max_size=5))
def test_no_cut_lets_a_secret_through(given: tuple[str, list[bytes]], gaps: list[float]) -> None:
    _, chunks = given
    times = [sum(gaps[k % len(gaps)] for k in range(n + 1)) for n in range(len(chunks))]
    shown = published(chunks, times=times)
    assert SECRET not in shown
    assert TOKEN.strip() not in shown


@given(chunked())
def test_whole_lines_are_shown_as_an_outcome_would_show_them(
    given: tuple[str, list[bytes]],
) -> None:
    text, chunks = given
    assume(max(map(len, text.split("\n"))) < LINE_CHARACTERS)
    assert published(chunks) == without_keys(text, {SECRET})


@given(st.integers(1, 200))
def test_a_private_key_is_hidden_however_its_lines_arrive(size: int) -> None:
    raw = f"before\n{PEM}after\n".encode()
    shown = published([raw[n : n + size] for n in range(0, len(raw), size)])
    assert shown == "before\n[redacted]\nafter\n"


PRINTED = {
    "as it is": "{line}",
    "cat -n": "     {number}\t{line}",
    "a reading tool": "     {number}\N{RIGHTWARDS ARROW}{line}",
    "grep": "key.pem:{line}",
    "a quotation": "> {line}",
    "a diff": "+{line}",
    "a coloured diff": "\x1b[32m+{line}",
}


@pytest.mark.parametrize("form", PRINTED.values(), ids=PRINTED)
def test_a_private_key_is_hidden_however_a_program_prints_its_lines(form: str) -> None:
    lines = [form.format(number=n, line=line) for n, line in enumerate(PEM.splitlines(), 1)]
    text = "\n".join(["before.", *lines, "after it.\n"])
    by_line = published([line.encode() for line in text.splitlines(keepends=True)])
    for shown in (by_line, published([text.encode()]), without_keys(text)):
        assert "MIIE" not in shown
        assert shown.startswith("before.\n")
        assert shown.endswith("after it.\n")


def test_a_key_with_escaped_line_ends_is_hidden() -> None:
    escaped = PEM.replace("\n", "\\n")
    shown = published([f'{{"private_key": "{escaped}"}}\nnext line.\n'.encode()])
    assert shown == '{"private_key": "[redacted]\\n"}\nnext line.\n'


def test_a_secret_of_several_lines_is_hidden_line_by_line() -> None:
    redactor = LineRedactor(frozenset({"first-line-of-it\nsecond-line-of-it"}))
    shown = redactor.feed(b"first-line-of-it\n", now=0.0)
    shown += redactor.feed(b"second-line-of-it\n", now=0.0)
    assert shown == "[redacted]\n[redacted]\n"


LAST_LINE = PEM.index("-----END")


@pytest.mark.parametrize("first", ["", "a mention of -----BEGIN PRIVATE KEY-----\n"])
@pytest.mark.parametrize("waits", [0, 5, 40])
@pytest.mark.parametrize("cut", [0, 9, 11, 20, 31, 32, 400, LAST_LINE + 9, LAST_LINE + 28])
def test_a_key_is_hidden_wherever_a_gap_in_the_output_ends(
    first: str, waits: int, cut: int
) -> None:
    text = f"{first}{'plain ' * 200}{PEM}after it.\nMIIE no key\n"
    end = text.index(PEM) + cut
    begin = len(first) + 600 if waits == 0 else max(len(first), end - 20)
    redactor = LineRedactor()
    shown = redactor.feed(text[:begin].encode(), now=0.0)
    redactor.lose(text[begin:end])
    for piece in (text[end : end + waits], text[end + waits :]):
        shown += redactor.feed(piece.encode(), now=0.0)
    shown += redactor.feed(b"", now=0.0, final=True)
    assert shown.count("MIIE") == 1
    assert shown.endswith("after it.\nMIIE no key\n")


def test_a_key_is_hidden_that_begins_in_a_line_too_long_to_wait_for() -> None:
    shown = published([b"x" * LINE_LIMIT + PEM[:40].encode(), PEM[40:].encode() + b"after it.\n"])
    assert "MIIE" not in shown
    assert shown.endswith("after it.\n")


def test_a_private_key_without_an_end_is_hidden_to_the_end_of_the_output() -> None:
    shown = published([b"before\n-----BEGIN PRIVATE KEY-----\nMIIEowIBAAKC\n", b"more\n"])
    assert shown == "before\n[redacted]"


def test_an_unfinished_line_is_shown_after_a_second_without_its_end() -> None:
    redactor = LineRedactor()
    line = "Compiling " + "module " * 100
    assert redactor.feed(line.encode(), now=0.0) == ""
    shown = redactor.feed(b"", now=LINE_AGE_S + 0.1)
    assert line.startswith(shown)
    assert len(shown) == len(line) - OVERLAP


def test_a_line_of_ten_megabytes_is_left_out_and_takes_no_memory() -> None:
    redactor = LineRedactor()
    shown = ""
    for _ in range(160):
        shown += redactor.feed(b"s3cr3t" * 11_000, now=0.0)
    shown += redactor.feed(b"\nnext line\n", now=0.0)
    assert shown.endswith("next line\n")
    assert len(redactor._text) <= LINE_LIMIT


def test_half_a_character_waits_for_its_other_half() -> None:
    redactor = LineRedactor()
    assert redactor.feed("to \u00e9".encode()[:-1], now=0.0) == ""
    assert redactor.feed("to \u00e9".encode()[-1:] + b"\n", now=0.0) == "to \u00e9\n"


@pytest.mark.parametrize(
    ("lost", "is_in_key"),
    [
        ("hun", False), (f"{PEM[:60]}hun", True), (f"{PEM}hun", False),
        ("-----BEGIN CERTIFICATE-----\nhun", False),
        (f"{PEM[:60]}-----END CERTIFICATE-----\nhun", True),
    ],
)  # fmt: skip
def test_after_dropped_bytes_the_rest_of_their_line_is_left_out(
    lost: str, *, is_in_key: bool
) -> None:
    redactor = LineRedactor(frozenset({SECRET}))
    redactor.feed(b"begun: ", now=0.0)
    assert redactor.lose(lost) == len("begun: ")
    text = b"ter2-hunter2\nMIIEowIBAAKC\n-----END PRIVATE KEY-----\nplain text\n"
    shown = redactor.feed(text, now=0.0)
    assert "ter2" not in shown
    assert shown.endswith("plain text\n")
    assert ("MIIE" in shown) is not is_in_key


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_key_whose_lines_have_a_log_prefix_is_redacted_line_by_line(prefix: str) -> None:
    lines = logged(prefix)
    for chunks in ([line.encode() for line in lines], ["".join(lines).encode()]):
        shown = published(chunks)
        assert "MIIE" not in shown
        assert shown.startswith(lines[0])
        assert shown.endswith(lines[-1])


def test_a_key_with_a_log_prefix_whose_beginning_was_dropped_is_redacted() -> None:
    lines = logged(PREFIXES[0])
    redactor = LineRedactor()
    redactor.feed("".join(lines[:1]).encode(), now=0.0)
    redactor.lose("".join(lines[1:5]))
    shown = redactor.feed(("\n" + "".join(lines[5:])).encode(), now=0.0, final=True)
    assert "MIIE" not in shown
    assert shown.endswith(lines[-1])


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_key_whose_lines_have_a_log_prefix_is_redacted_in_stored_texts(prefix: str) -> None:
    lines = logged(prefix)
    stored = without_keys("".join(lines))
    assert "MIIE" not in stored
    assert stored.startswith(lines[0])
    assert stored.endswith(lines[-1])
    cut_off = without_keys("".join(lines[:9]))
    assert "MIIE" not in cut_off
