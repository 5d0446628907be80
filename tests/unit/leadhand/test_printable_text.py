"""Which characters reach a terminal as they are: all letters, and no control of the screen."""

from __future__ import annotations

import io
from collections.abc import Sequence

import pytest

from leadhand.cli.render.terminal import EscapingStream
from leadhand.models.text import block, escape_controls, escape_line, plain

LETTERS = {
    "Persian with ZWNJ": "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
    "emoji family with ZWJ": "\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "Hebrew with marks": "\u200f\u05e9\u05dc\u05d5\u05dd\u200f (\u200ev2\u200e)",
}


@pytest.mark.parametrize("name", LETTERS)
def test_text_with_joiners_and_direction_marks_stays(name: str) -> None:
    text = LETTERS[name]
    assert plain(text) == text
    assert list(block(text)) == [text]
    assert escape_controls(text) == text
    assert escape_line(text) == text


@pytest.mark.parametrize("control", [*"\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"])
def test_bidi_overrides_embeddings_and_isolates_are_escaped(control: str) -> None:
    assert escape_controls(f"a{control}b") == f"a\\u{ord(control):04x}b"
    assert plain(f"a{control}b") == "a b"
    assert list(block(f"a{control}b")) == ["a b"]


@pytest.mark.parametrize(
    ("writes", "shown"),
    [
        (["a\r", "\nb"], "a\r\nb"),
        (["a\r\n", "b"], "a\r\nb"),
        (["a\r", "b"], "a\\u000db"),
        (["a\r", "\r", "\n"], "a\\u000d\r\n"),
        (["a\r"], "a\\u000d"),
        (["a\r", "", "\n"], "a\r\n"),
    ],
)
def test_line_end_in_two_writes_stays(writes: Sequence[str], shown: str) -> None:
    assert written(writes) == shown


def test_flush_writes_a_carriage_return_that_was_held_back() -> None:
    assert written(["a\r", None, "\n"]) == "a\\u000d\n"


def written(writes: Sequence[str | None]) -> str:
    """The bytes behind a stream after these writes; None flushes it."""
    target = io.BytesIO()
    stream = EscapingStream(io.TextIOWrapper(target, encoding="utf-8", newline=""))
    for text in writes:
        if text is None:
            stream.flush()
        else:
            assert stream.write(text) == len(text)
    stream.detach()
    return target.getvalue().decode()
