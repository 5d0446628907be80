"""First lines and costs of a session, in commands that follow it or wait for it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from rich.console import Console

from leadhand.cli import cli
from leadhand.cli.connect import tell
from leadhand.cli.entrypoint import run
from leadhand.cli.render.live import LiveScreen
from leadhand.models.text import without_ansi
from leadhand.models.views.session import Progress, SessionView
from leadhand.models.views.step import Event
from tests.scripted_api import AT, TOKEN, Script, scripted_api

HEAD = "session 00000000: my label (Write the parser)"
PAID = {"word": "succeeded", "text": "I wrote it", "cost_usd": 0.125}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted_api() as (url, script):
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        script.events = [("step.settled", "loop~1[1]/do", PAID)]
        script.about = {"label": "my label", "task": "Write the parser"}
        script.result = {"cost_usd": 0.25, "input_tokens": 900, "output_tokens": 100}
        yield script


@pytest.fixture
def lines(capsys: pytest.CaptureFixture[str]):
    """The lines that a command prints."""

    def lines(*arguments: str) -> list[str]:
        assert run(cli, arguments) == 0
        return capsys.readouterr().out.splitlines()

    return lines


@pytest.fixture
def view() -> SessionView:
    """A running session."""
    return SessionView(
        id="1a2b3c4d", kind="loop", name="loop", status="active", root="1a2b3c4d",
        created_at=AT, updated_at=AT,
    )  # fmt: skip


def test_each_command_that_follows_or_waits_names_the_session_and_its_cost(script, lines) -> None:
    end = "accept after 1 iteration ($0.2500, 1000 tokens)"
    spawned = lines("spawn", "Write the parser\nwith care", "--checker", "true")
    assert spawned[:2] == [HEAD, "follow it elsewhere with: leadhand watch 00000000"]
    assert f"session 00000000: {end}" in spawned
    watched = lines("watch", "00000000")
    assert (watched[0], watched[-1]) == (HEAD, f"session 00000000: {end}")
    assert lines("wait", "00000000", "--summary") == [f"[my label (00000000)] completed: {end}"]
    for flags in ("--follow", "--output"):
        logged = lines("logs", "00000000", flags)
        assert logged[:2] == [HEAD, "[0:00] loop 1 doer: succeeded ($0.1250): I wrote it"]


def test_a_flow_says_its_cost_at_its_end(script, lines) -> None:
    script.add("1a2b3c4d", "completed", kind="flow", name="Flow: x", cost_usd=0.5)
    assert lines("watch", "1a2b3c4d")[-1] == "session 1a2b3c4d: accept after 1 iteration ($0.5000)"


def test_a_message_is_written_above_an_open_live_view(
    monkeypatch: pytest.MonkeyPatch, view: SessionView
) -> None:
    drawn, past = StringIO(), BytesIO()
    monkeypatch.setattr(sys, "stderr", TextIOWrapper(past, encoding="utf-8", write_through=True))
    screen = LiveScreen(Console(file=drawn, width=100, force_terminal=True), clock=lambda: 0.0)
    screen.start(view)
    try:
        tell("the API does not respond")
    finally:
        screen.close()
    assert "leadhand: the API does not respond\n" in without_ansi(drawn.getvalue())
    assert past.getvalue() == b""


def test_a_live_view_that_is_opened_late_counts_from_the_start_of_the_session(
    view: SessionView,
) -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True)
    screen = LiveScreen(console, clock=lambda: 0.0)
    screen.start(view.model_copy(update={"progress": Progress(elapsed_s=65)}))
    try:
        screen.show(Event(id="1-0", type="session.started", at_ms=1_000, fields={}))
        with console.capture() as captured:
            console.print(screen._render())
    finally:
        screen.close()
    assert "1:05" in captured.get()


def test_the_live_view_shows_what_has_been_spent_while_an_agent_runs(view: SessionView) -> None:
    console = Console(file=StringIO(), width=100, force_terminal=True)
    screen = LiveScreen(console, clock=lambda: 0.0)

    def shown() -> str:
        with console.capture() as captured:
            console.print(screen._render())
        return captured.get()

    screen.start(view)
    try:
        assert "$" not in shown()
        event = {"id": "1-0", "type": "step.settled", "at_ms": 1000, "address": "loop~1[1]/do"}
        screen.show(Event.model_validate({**event, "fields": PAID}))
        assert "$0.1250" in shown()
        counters = view.counters.model_copy(update={"cost_usd": 0.375})
        screen.update(view.model_copy(update={"counters": counters}))
        assert "$0.3750" in shown()
    finally:
        screen.close()
