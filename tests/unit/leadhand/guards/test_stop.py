"""`leadhand hook stop` with an API that does not answer, or not as it should."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from leadhand.cli.guards.config import blocks_below_cap
from leadhand.cli.guards.hooks import HookEvent
from leadhand.cli.guards.stop import answer_stop, call_times
from leadhand.models.guards import GuardLimits
from leadhand.models.views.shared import StopView

RUN = StopView(state="run", guard="0000000a", attempt=1, why="the first check").model_dump_json()


class Api:
    """Answers each request with the next text; after the last one it keeps silent."""

    def __init__(self) -> None:
        self.answers: list[str] = []
        self.bodies: list[dict[str, object]] = []
        self.over = threading.Event()
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                api.bodies.append(json.loads(self.rfile.read(length)))
                if not api.answers:
                    api.over.wait()
                    return
                text = api.answers.pop(0).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    thread = threading.Thread(target=api.server.serve_forever, args=(0.01,))
    thread.start()
    yield api
    api.over.set()
    api.server.shutdown()
    thread.join()
    api.server.server_close()


@pytest.fixture
def env(tmp_path: Path, api: Api) -> dict[str, str]:
    own = tmp_path / "config" / "leadhand" / "leadhand.toml"
    own.parent.mkdir(parents=True)
    own.write_text("[guard]\norder = ['build']\n[guard.gates.build]\ncommand = 'true'\n")
    folders = {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
    there = {name: str(tmp_path / folder) for name, folder in folders.items()}
    return {**there, "LEADHAND_URL": api.url, "LEADHAND_TOKEN": "t", "PATH": "/usr/bin:/bin"}


def stop_in(folder: Path, env: dict[str, str], timeout_s: float) -> tuple[int, float]:
    """The exit code of a stop, and the seconds it took."""
    event = HookEvent("Stop", "s-1", "p1", False, folder, {})
    began = time.monotonic()
    return answer_stop(event, env, timeout_s), time.monotonic() - began


def missed(tmp_path: Path) -> str:
    return (tmp_path / "state" / "leadhand" / "hooks" / "missed-s-1.txt").read_text()


def test_api_that_never_answers_is_given_up_before_the_hooks_time_is_over(
    env: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, took = stop_in(tmp_path, env, 1.8)
    assert code == 1
    assert took < 1.8
    assert "the stop is allowed unchecked" in capsys.readouterr().err
    assert "allowed unchecked" in missed(tmp_path)


def test_api_that_falls_silent_is_not_asked_again_near_the_end_but_for_the_decision(
    env: dict[str, str], tmp_path: Path, api: Api
) -> None:
    api.answers = [RUN]
    code, took = stop_in(tmp_path, env, 1.8)
    assert code == 1
    assert took < 1.8
    assert ["gates" in one for one in api.bodies] == [False, True]
    assert "allowed unchecked" in missed(tmp_path)


@pytest.mark.parametrize("at_terminal", [True, False])
def test_person_at_a_terminal_is_shown_which_gate_runs_and_an_agent_is_not(
    env: dict[str, str], tmp_path: Path, api: Api, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, *, at_terminal: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr("sys.stderr.isatty", lambda: at_terminal)
    api.answers = [RUN]
    stop_in(tmp_path, env, 1.8)
    assert ("the gate build is run" in capsys.readouterr().err) is at_terminal


def test_answer_that_is_none_allows_the_stop(env: dict[str, str], tmp_path: Path, api: Api) -> None:
    api.answers = ["{}"]
    assert stop_in(tmp_path, env, 30)[0] == 1
    assert "allowed unchecked" in missed(tmp_path)


@pytest.mark.parametrize("left_s", [-3.0, 0.0, 1.0, 4.0, 11.9, 12.0, 500.0])
def test_call_ends_within_the_time_that_is_left(left_s: float) -> None:
    timeout_s, patience_s = call_times(left_s)
    assert timeout_s > 0
    assert patience_s > 0
    assert timeout_s + patience_s <= max(0.2, min(left_s, 12.0)) + 1e-9


@pytest.mark.parametrize("cap", ["1000000", "9" * 40])
def test_cap_of_an_agent_beyond_the_most_blocks_is_that_many(cap: str) -> None:
    assert GuardLimits(blocks_in_a_row=blocks_below_cap(cap)).blocks_in_a_row == 100_000
