"""`python -P -m leadhand.serve api` over a real Redis, beside a user's modules of our names."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from leadhand.client.client import Client
from leadhand.errors import (
    ControlRefused,
    IdempotencyConflict,
    RequestInvalid,
    SessionStillRuns,
    SessionUnknown,
    TokenRefused,
    Unavailable,
)
from leadhand.local.processes import free_port
from leadhand.local.redis_server import RedisServer
from tests.redis_users import of_broker
from tests.waiting import wait_until

TOKEN = "t0ken"
LOOP = {"kind": "loop", "task": "write it", "checker": "true", "doer": {"command": "true"}}


@contextmanager
def running(folder: Path, redis_url: str, **more: str) -> Iterator[str]:
    """The API's address; its current folder holds modules of the same names as ours."""
    for name in ("api", "app", "tasks", "gunicorn"):
        (folder / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    (folder / "gunicorn.conf.py").write_text("raise SystemExit('the wrong configuration')\n")
    address = f"127.0.0.1:{free_port()}"
    env = {
        **os.environ,
        "LEADHAND_REDIS_URL": redis_url,
        "LEADHAND_BROKER_URL": of_broker(redis_url),
        "LEADHAND_API_TOKEN": TOKEN,
        "LEADHAND_SECRET": "s3cret",
        "LEADHAND_API_BIND": address,
        **more,
    }
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "leadhand.serve", "api"], cwd=folder, env=env, stderr=log
        )
    try:
        wait_until(lambda: _alive(f"http://{address}") or process.poll() is not None, timeout=30)
        assert process.poll() is None, (folder / "log").read_text()
        yield f"http://{address}"
    finally:
        process.terminate()
        assert process.wait(timeout=15) == 0


def _alive(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz").is_success
    except httpx2.TransportError:
        return False


@pytest.fixture
def url(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[str]:
    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        yield url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url, TOKEN) as client:
        yield client


def test_a_session_is_kept_in_redis_and_told_over_http(client):
    session = client.submit(LOOP, "mine")
    assert (session.kind, session.status, session.root) == ("loop", "active", session.id)
    assert client.submit(LOOP, "mine").id == session.id
    with pytest.raises(IdempotencyConflict):
        client.submit({**LOOP, "task": "another"}, "mine")
    assert [listed.id for listed in client.sessions(kind="loop").items] == [session.id]
    assert [step.action for step in client.steps(session.id).items] == ["check"], "before the work"
    assert client.ledger(session.id).items == []
    assert client.workers() == []
    with pytest.raises(SessionStillRuns):
        client.result(session.id)
    with pytest.raises(SessionStillRuns):
        client.delete(session.id)


def test_a_session_that_is_steered_tells_of_it_as_it_happens(client):
    session = client.submit(LOOP).id
    told: list[str] = []

    def follow() -> None:
        told.extend(event.type for event in client.events(session))

    watcher = threading.Thread(target=follow)
    watcher.start()
    assert client.abort(session, "enough").status == "aborted"
    watcher.join(timeout=15)
    assert told[0].startswith("session.")
    assert told[-1].startswith("session.")
    result = client.wait(session, timeout=10)
    assert (result.status, result.verdict) == ("aborted", None)
    assert result.reason is not None
    assert (result.reason.code, result.reason.text) == ("aborted", "enough")
    with pytest.raises(ControlRefused):
        client.resume(session)
    client.delete(session)
    with pytest.raises(SessionUnknown):
        client.session(session)


def test_what_the_engine_refuses_names_the_field(client):
    with pytest.raises(RequestInvalid) as caught:
        client.submit({**LOOP, "cwd": "/no/such/folder"})
    assert caught.value.problem.field == "cwd"
    with pytest.raises(RequestInvalid):
        client.sessions(cursor="not ours")


def test_a_stranger_gets_nowhere(url):
    with Client(url, "wrong") as stranger, pytest.raises(TokenRefused):
        stranger.submit(LOOP)


def test_what_the_log_says_holds_ids_and_no_payload(client, tmp_path):
    session = client.submit({**LOOP, "task": "a private matter"}).id
    client.session(session)
    text = wait_until(lambda: (log := (tmp_path / "log").read_text()).count(session) and log)
    assert "a private matter" not in text
    assert TOKEN not in text


def test_a_redis_that_goes_and_comes_back(tmp_path):
    home = tmp_path / "state" / ".leadhand"
    home.parent.mkdir()
    folder = tmp_path / "work"
    folder.mkdir()
    server = RedisServer(home)
    with server, running(folder, server.url) as url, Client(url, TOKEN, patience_s=0.1) as client:
        session = client.submit(LOOP).id
        client.ping()
        server.kill()
        with pytest.raises(Unavailable) as caught:
            client.session(session)
        assert caught.value.problem.type.endswith("store-away")
        assert httpx2.get(f"{url}/healthz").is_success
        server.relaunch()
        with Client(url, TOKEN, patience_s=20) as patient:
            patient.ping()
            assert patient.session(session).id == session
            assert patient.abort(session).status == "aborted"
            assert [event.type for event in patient.events(session)]


def test_a_setting_that_is_missing_is_told_in_one_line(tmp_path):
    env = {name: value for name, value in os.environ.items() if not name.startswith("LEADHAND_")}
    started = subprocess.run(
        [sys.executable, "-P", "-m", "leadhand.serve", "api"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=20, check=False,
    )  # fmt: skip
    assert started.returncode == 1
    assert "LEADHAND_REDIS_URL" in started.stderr
    assert "Traceback" not in started.stderr
