"""Addresses of Redis: Unix sockets work, what cannot work is refused at start in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.settings import Settings
from leadhand.client.client import Client
from leadhand.errors import SettingInvalid
from leadhand.local.redis_server import find_program
from tasks.bootstrap import refusal
from tests.acceptance.project import Project
from tests.fleet import Fleet
from tests.integration.api.test_api_process import TOKEN, running
from tests.waiting import wait_until


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[Path]:
    """A server that listens on a Unix socket only."""
    path = tmp_path / "redis.sock"
    server = subprocess.Popen(
        [find_program().path, "--port", "0", "--unixsocket", path, "--requirepass", "pass/word"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
    )
    wait_until(path.exists)
    yield path
    server.terminate()
    server.wait(timeout=15)


@pytest.mark.parametrize("login", [":pass%2Fword@", ""])
@pytest.mark.slow
def test_fleet_works_over_a_unix_socket(tmp_path: Path, socket: Path, login: str) -> None:
    query = "" if login else "&password=pass%2Fword"
    store, broker = (f"unix://{login}{socket}?db={db}{query}" for db in (0, 1))
    more = {"LEADHAND_BROKER_URL": broker, "LEADHAND_SECRET": "secret of the test"}
    (tmp_path / "work").mkdir()
    fleet = Fleet(tmp_path / "work", store, broker, lease_s=5)
    try:
        fleet.worker("one")
        with running(tmp_path, store, **more) as url, Client(url, TOKEN) as client:
            loop = {"kind": "loop", "task": "x", "doer": {"command": "true"}, "checkers": ["true"]}
            session = client.submit({**loop, "cwd": str(fleet.folder)}).id
            assert client.wait(session, 20).status == "completed"
        assert "Traceback" not in (fleet.folder / "one.log").read_text()
    finally:
        fleet.close()


def started(tmp_path: Path, module: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", module],
        cwd=tmp_path,
        env={**os.environ, "LEADHAND_SECRET": "s", "LEADHAND_API_BIND": "127.0.0.1:0", **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


@pytest.mark.parametrize("module", ["api", "workers"])
@pytest.mark.parametrize("setting", ["LEADHAND_REDIS_URL", "LEADHAND_BROKER_URL"])
def test_wrong_password_is_refused_at_start_with_the_name_of_its_setting(
    tmp_path: Path, store_url: str, module: str, setting: str
) -> None:
    host = store_url.rpartition("@")[2]
    env = {"LEADHAND_REDIS_URL": store_url, setting: f"redis://:not-that-word@{host}"}
    ended = started(tmp_path, module, **env)
    assert ended.returncode == 1
    (line,) = [line for line in ended.stderr.splitlines() if "refuses the user or password" in line]
    assert setting in line
    assert "not-that-word" not in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "url", ["http://host:6379", "localhost:6379", "unix://", "redis+socket:///x"]
)
@pytest.mark.parametrize("module", ["api", "workers"])
def test_address_that_no_client_can_use_is_refused_at_start(
    tmp_path: Path, module: str, url: str
) -> None:
    if (module, url) in (("api", "http://host:6379"), ("workers", "localhost:6379")):
        ended = started(tmp_path, module, LEADHAND_REDIS_URL=url)
        assert ended.returncode == 1
        said = ended.stderr
    else:  # both read the same settings: a process of each is enough
        with pytest.raises(SettingInvalid) as refused:
            Settings.from_env({"LEADHAND_SECRET": "s", "LEADHAND_REDIS_URL": url})
        said = refusal(module, refused.value)
    assert "LEADHAND_REDIS_URL" in said
    assert "unix:///PATH/redis.sock" in said
    assert "Traceback" not in said


def test_embedded_services_say_at_once_that_the_password_is_wrong(
    tmp_path: Path, store_url: str
) -> None:
    url = f"redis://:not-that-word@{store_url.rpartition('@')[2]}"
    project = Project(tmp_path / "project", LEADHAND_REDIS_URL=url)
    try:
        ended = project.leadhand("ls")
        assert ended.code == 1
        assert "refuses the login of LEADHAND_REDIS_URL" in ended.err
        assert "not-that-word" not in ended.err
    finally:
        project.close()
