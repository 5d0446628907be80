"""Text that no request may carry is refused in one sentence before it is sent."""

from __future__ import annotations

import httpx2
import pytest

from leadhand.client.transport import build_request, headers_of
from leadhand.contract.calls import Call, Reach
from leadhand.errors import Malformed, RequestInvalid, TokenRefused

ODD = ["é", "a\udcffb", "a\nX-Other: b", "a\0b", "\u202e"]


@pytest.mark.parametrize("text", ODD)
def test_a_token_of_other_characters_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(TokenRefused) as caught:
        assert headers_of(Reach("http://127.0.0.1:9", f"hush{text}"))
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("name", ["Idempotency-Key", "If-Match", "Last-Event-ID"])
@pytest.mark.parametrize("text", ODD)
def test_a_header_of_other_characters_is_refused_by_its_name(name: str, text: str) -> None:
    with httpx2.Client() as http, pytest.raises(RequestInvalid, match=name) as caught:
        build_request(http, Call("GET", "http://127.0.0.1:9/v1", headers={name: text}))
    assert caught.value.problem.type == Malformed.kind.uri


def test_an_argument_that_is_no_text_is_refused() -> None:
    with httpx2.Client() as http, pytest.raises(RequestInvalid, match="no valid text"):
        build_request(http, Call("GET", "http://127.0.0.1:9/v1", params={"label": "a\udcff"}))
