"""Commands print times in the local time zone, also those inside the API's texts."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from leadhand.cli.connect import tell
from leadhand.cli.messages import message_lines
from leadhand.cli.render.times import with_local_times
from leadhand.cli.show import explanation
from leadhand.cli.token import _row
from leadhand.models.views.explain import Cause, ExplainView, InboxMessage, Wait
from leadhand.models.views.fleet import Quotas, Spent, TokenView

AT = "2026-11-22T17:58:30.500+00:00"
HERE = "2026-11-22 23:28:30"


@pytest.fixture(autouse=True)
def _zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone that is no whole number of hours away from UTC."""
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "IST-5:30")
        time.tzset()
        yield
    time.tzset()


def test_times_in_a_text_are_local_and_the_rest_is_kept() -> None:
    assert with_local_times(f"until {AT} at most, {AT}") == f"until {HERE} at most, {HERE}"
    assert with_local_times("2026-11-22T17:58:30+00:00") == HERE
    for text in ("loop~1[2]/do", "2026-11-22", f"x{AT}", "2026-13-22T17:58:30.500+00:00"):
        assert with_local_times(text) == text


def test_explain_has_local_times_only() -> None:
    text = f"attempt 1 by w is running, until {AT} at most"
    beneath = Wait(why="lock", session="0000000b", since=AT, text=text)
    wait = Wait(why="running", session="0000000a", since=AT, text=text, beneath=[beneath])
    cause = Cause(code="deadline", text=f"its deadline passed at {AT}")
    view = ExplainView(
        session="0000000a", status="active", text=f"at {AT}", waits=[wait], causes=[cause]
    )
    lines = list(explanation(view))
    assert lines[0] == f"session 0000000a is active: at {HERE}"
    shown = "\n".join(lines)
    assert "+00:00" not in shown
    assert shown.count(f"until {HERE} at most") == 2
    assert f"  running since {HERE} (" in shown
    assert f"its deadline passed at {HERE}" in shown


def test_messages_on_standard_error_have_local_times(capsys: pytest.CaptureFixture[str]) -> None:
    tell(f"worker w refused to start at {AT}: another is running")
    expected = f"leadhand: worker w refused to start at {HERE}: another is running\n"
    assert capsys.readouterr().err == expected


def test_tokens_and_messages_have_local_times() -> None:
    token = TokenView(
        id="1", name="n", scopes=["read"], created_at=AT, expires_at=AT, last_used_at=AT,
        quotas=Quotas(), spent=Spent(),
    )  # fmt: skip
    assert _row(token)[-2:] == [HERE, HERE]
    message = InboxMessage.model_validate(
        {"id": 1, "kind": "note", "sender": "me", "at": AT, "text": "hello"}
    )
    assert HERE in next(iter(message_lines(message)))
