"""`leadhand explain` over a real API: every command that it suggests works."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.program import SCHEMA_VERSION
from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from leadhand.client.client import Client
from tests.integration.api.test_api_process import LOOP, TOKEN, running
from tests.waiting import wait_until


@pytest.fixture
def leadhand(capsys, monkeypatch) -> Callable[..., tuple[int, str]]:
    for name in [name for name in os.environ if name.startswith("LEADHAND_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)

    def leadhand(url: str, *arguments: str) -> tuple[int, str]:
        monkeypatch.setenv("LEADHAND_URL", url)
        return run(cli, arguments), capsys.readouterr().out

    return leadhand


@pytest.mark.timeout(120)
@pytest.mark.slow
def test_what_is_told_can_be_run(
    tmp_path: Path, store_url: str, broker_url: str, redis_client, leadhand
) -> None:
    def run_all(session: str) -> list[str]:
        code, text = leadhand(url, "explain", session, "--json")
        assert code == 0
        commands = json.loads(text)["next"]
        for command in commands:
            assert leadhand(url, *shlex.split(command)[1:])[0] in (0, 2), command
        return list(commands)

    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        with Client(url, TOKEN) as client:
            session = client.submit({**LOOP, "cwd": str(tmp_path)}).id
            assert run_all(session) == ["leadhand workers"]
            seen_ms = int(redis_client.time()[0]) * 1000
            told = {"place": "far", "queues": ["agents@far"], "schema_version": SCHEMA_VERSION}
            told["seen_ms"] = seen_ms
            redis_client.hset("lh:workers", "w", json.dumps(told))
            assert run_all(session) == [f"leadhand rehome {session} far"]
            assert run_all(session) == ["leadhand queues"]
            assert leadhand(url, "explain", session)[1].startswith(f"session {session} is active: ")
            client.stop(session)
            wait_until(lambda: client.session(session).status == "stopped")
            assert run_all(session) == [f"leadhand resume {session}"]
            client.abort(session)
            wait_until(lambda: client.session(session).status == "aborted")
            assert run_all(session) == [f"leadhand show {session}", f"leadhand rerun {session}"]
        assert leadhand(url, "explain", "00000000")[0] == 1
