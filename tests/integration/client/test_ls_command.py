"""`leadhand ls` over a real API that examines only a part of the sessions per page."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import pytest
from werkzeug.serving import make_server

from api import create_app
from app.engine import Engine
from app.settings import Settings
from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from tests.silent_engine import loop, silent_engine

TOKEN = "the operator's own"
Leadhand = Callable[..., tuple[str, str]]


@pytest.fixture
def engine(store_url: str) -> Engine:
    return silent_engine(store_url, secret="s")


@pytest.fixture
def leadhand(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Leadhand]:
    monkeypatch.setattr("app.sessions.listing.LOOKED_AT", 3)
    app = create_app(Settings(api_token=TOKEN, secret="s"), engine)
    server = make_server("127.0.0.1", 0, app, threaded=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    monkeypatch.setenv("LEADHAND_URL", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)

    def leadhand(*arguments: str) -> tuple[str, str]:
        assert run(cli, arguments) == 0
        captured = capsys.readouterr()
        return captured.out, captured.err

    yield leadhand
    server.shutdown()
    thread.join()
    server.server_close()
    app.fanout.close()


def test_a_label_is_found_behind_many_others_at_once(engine: Engine, leadhand: Leadhand) -> None:
    old = engine.submit.document(loop(label="L7")).session
    for _ in range(8):
        engine.submit.document(loop())
    out, err = leadhand("ls", "--label", "L7")
    assert old in out
    assert "looked at" not in err
    assert leadhand("ls", "--label", "L8") == ("no sessions match\n", "")
    assert json.loads(leadhand("ls", "--json", "--label", "L7")[0])["examined"] == 1


def test_a_filter_without_an_index_goes_on_and_says_how_many_it_looked_at(
    engine: Engine, leadhand: Leadhand
) -> None:
    old = engine.submit.document(loop()).session
    engine.control.apply(old, "abort")
    for _ in range(8):
        engine.submit.document(loop())
    out, err = leadhand("ls", "--reason", "aborted")
    assert old in out
    assert err.splitlines() == [
        "leadhand: looked at 3 sessions so far; looking at older ones",
        "leadhand: looked at 9 sessions",
    ]
    assert json.loads(leadhand("ls", "--json", "--reason", "aborted")[0])["examined"] == 9


def test_sessions_are_found_by_name_and_time(engine: Engine, leadhand: Leadhand) -> None:
    session = engine.submit.document(loop()).session
    created = engine.queries.session(session).created_at
    assert session in leadhand("ls", "--name", "loop", "--created-after", created)[0]
    assert leadhand("ls", "--created-before", created)[0] == "no sessions match\n"
    assert leadhand("ls", "--name", "other")[0] == "no sessions match\n"
    assert run(cli, ["ls", "--created-after", "yesterday"]) == 1


def test_parts_are_put_together(engine: Engine, leadhand: Leadhand) -> None:
    old = engine.submit.document(loop(label="b")).session
    for _ in range(4):
        engine.submit.document(loop())
    new = engine.submit.document(loop(task="# Tidy up\nall")).session
    out, _ = leadhand("ls", "--kind", "loop")
    assert out.index(new) < out.index(old)
    assert len(out.splitlines()) == 7
    assert "Tidy up" in out
    out, _ = leadhand("ls", "--kind", "loop", "--limit", "5")
    assert new in out
    assert old not in out
    assert out.endswith("... more than 5: see --limit\n")


def test_no_sessions_at_all_are_no_filter_that_fails(leadhand: Leadhand) -> None:
    assert leadhand("ls")[0] == "no sessions; start one with `leadhand spawn`\n"


def test_the_head_of_a_session_says_what_it_is_about(engine: Engine, leadhand: Leadhand) -> None:
    session = engine.submit.document(loop(task="Tidy up\nall", label="l")).session
    lines = leadhand("show", session)[0].splitlines()
    assert lines[0] == f"session  {session}  loop  l"
    assert "task     Tidy up" in lines
    assert "doer     command true" in lines
    assert any(line.startswith("checkers  ") for line in lines)
