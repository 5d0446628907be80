"""The part of the prompt that describes the attempt before."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.outcomes import QUOTED, quote_error
from app.redaction import redact
from app.security import signatures


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijkl",
        "ghp_abcdefghijklmnop1234",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
        "lht_0123456789ab_0123456789abcdef",
        signatures.mint(signatures.Caller("s", "loop~1[1]/do", 1, ("exit",)), secret="x" * 32),
    ],
)
def test_what_looks_like_a_credential_is_left_out(secret: str) -> None:
    for text in (secret, f"refused: {secret}!", f"Authorization: Bearer {secret}", f"KEY={secret}"):
        assert secret not in redact(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password: hunter22", "password: [redacted]"),
        ("LEADHAND_SECRET=abcdefgh", "LEADHAND_SECRET=[redacted]"),
        ('{"api_key": "abcdefgh"}', '{"api_key": "[redacted]"}'),
        ("redis://user:pa55@host:6379/0", "redis://user:[redacted]@host:6379/0"),
        ("--api-key needs a value", "--api-key needs a value"),
        ("15000 tokens: too many", "15000 tokens: too many"),
        ("the file key.txt is missing", "the file key.txt is missing"),
    ],
)
def test_names_say_what_is_secret(text: str, shown: str) -> None:
    assert redact(text) == shown


@given(st.text(max_size=2000))
def test_an_error_is_one_short_line(text: str) -> None:
    line = quote_error(text)
    assert len(line) <= QUOTED
    assert len(line.splitlines()) <= 1
    assert bool(line) == any(part.strip() for part in text.splitlines())


def test_a_secret_that_the_cut_would_halve_is_left_out() -> None:
    text = "x" * (QUOTED - 6) + " sk-abcdefgh12345678"
    assert "sk-" not in quote_error(text)


@pytest.mark.parametrize("text", ["a", "a_", "token", "token ", "eyJ-", "x://a:", "bearer "])
def test_no_text_is_slow_to_redact(text: str) -> None:
    begun = time.process_time()
    redact(text * (60_000 // len(text)))
    assert time.process_time() - begun < 5
