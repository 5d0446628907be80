"""Hooks in folders whose services do not run: they start none, and join those that run."""

from __future__ import annotations

import io
import json
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.local import processes, user_state
from leadhand.local.connect import join
from leadhand.models.api_proof import NONCE_HEADER, PROOF_HEADER, proof_of

#: What the services prove to know.
KEY = "0" * 64
Hook = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    folders = {"HOME": "home", "XDG_STATE_HOME": "state", "XDG_CONFIG_HOME": "config"}
    env = {name: str(tmp_path / folder) for name, folder in folders.items()}
    for name in [name for name in os.environ if name.startswith(("LEADHAND_", "CLAUDE_"))]:
        monkeypatch.delenv(name)
    env["LEADHAND_HOME"] = str(tmp_path / "services")
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    return env


@pytest.fixture
def hook(
    env: dict[str, str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Hook:
    monkeypatch.chdir(folder)

    def call(*arguments: str, **event: str) -> tuple[int, str, str]:
        fields = {"session_id": "s-1", "cwd": str(folder), **event}
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(fields)))
        return run(cli, ("hook", *arguments)), *capsys.readouterr()

    return call


class Api(BaseHTTPRequestHandler):
    """Answers a request with the proof that it asks for."""

    def do_GET(self) -> None:
        self.send_response(200)
        port = int(self.headers["Host"].rpartition(":")[2])
        self.send_header(PROOF_HEADER, proof_of(KEY, port, self.headers[NONCE_HEADER]))
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Print nothing."""


@contextmanager
def running(home: Path, env: dict[str, str], *, supervised: bool = True) -> Iterator[str]:
    """The files of a folder whose services run, and an API that proves itself."""
    user_state.prepare(home)
    lock = processes.open_lock(home / "supervisor.lock")
    with ThreadingHTTPServer(("127.0.0.1", 0), Api) as api:
        Thread(target=api.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{api.server_port}"
        fields = {"host": socket.gethostname(), "url": url, "token": "t", "proof_key": KEY}
        user_state.write_fields(home / "run.json", fields)
        if supervised:
            assert processes.take(lock)
        yield url
        api.shutdown()
    os.close(lock)


@pytest.mark.parametrize("name", ["UserPromptSubmit", "SessionEnd"])
def test_event_starts_no_services(hook: Hook, env: dict[str, str], name: str) -> None:
    Path(env["LEADHAND_HOME"]).touch()  # services could not start
    assert hook("event", hook_event_name=name) == (0, "", "")


def test_stop_without_any_guard_starts_no_services(
    hook: Hook, folder: Path, env: dict[str, str]
) -> None:
    Path(env["LEADHAND_HOME"]).touch()
    assert hook("stop", hook_event_name="Stop") == (0, "", "")
    (folder / "leadhand.toml").write_text("[guard.gates.build]\ncommand = 'true'\n")
    assert hook("stop", hook_event_name="Stop")[0] == 1


def test_nothing_is_created_where_no_services_run(
    hook: Hook, folder: Path, env: dict[str, str]
) -> None:
    assert hook("event", hook_event_name="SessionEnd") == (0, "", "")
    assert hook("stop", hook_event_name="Stop") == (0, "", "")
    home = Path(env["LEADHAND_HOME"])
    assert join(home, env=env) is None
    assert list(folder.iterdir()) == []
    assert not home.exists()


def test_services_that_run_are_joined_and_kept_up(folder: Path, env: dict[str, str]) -> None:
    home = folder / "state"
    with running(home, env) as url:
        connection = join(home, env=env)
        assert connection is not None
        assert (connection.url, connection.token) == (url, "t")
        idle = processes.open_lock(home / "commands.lock")
        assert not processes.take(idle)
        connection.close()
        assert processes.take(idle)
        assert join(home, env=env) is None  # they shut down
        os.close(idle)
        (home / "run.json").unlink()
        assert join(home, env=env) is None  # they start


def test_file_that_ended_services_left_is_not_believed(folder: Path, env: dict[str, str]) -> None:
    home = folder / "state"
    with running(home, env, supervised=False):
        assert join(home, env=env) is None
