"""`leadhand fsck` over a real API: its output and its exit codes."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from leadhand.cli import cli
from leadhand.cli import fleet as module
from leadhand.cli.entrypoint import run
from leadhand.cli.fleet import fsck_lines
from leadhand.client.client import Client
from leadhand.models.views.fleet import Finding, FsckView
from tests.integration.api.test_api_process import LOOP, TOKEN, running


@pytest.fixture
def fsck(capsys, monkeypatch):
    for name in [name for name in os.environ if name.startswith("LEADHAND_")]:
        monkeypatch.delenv(name)

    def fsck(url: str, *options: str) -> tuple[int, list[str]]:
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        folders = [] if "--worktrees" in options else ["--no-worktrees"]  # no worker runs here
        code = run(cli, ["fsck", *folders, *(one for one in options if one != "--worktrees")])
        return code, capsys.readouterr().out.splitlines()

    return fsck


@pytest.mark.timeout(120)
def test_a_lost_hint_is_found_and_mended(
    tmp_path: Path, store_url: str, broker_url: str, redis_client, fsck
) -> None:
    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        with Client(url, TOKEN) as client:
            session = client.submit({**LOOP, "baseline": False}).id
        taker = {"place": "local", "queues": ["agents", "agents@local"]}
        seen_ms = int(redis_client.time()[0]) * 1000
        redis_client.hset("lh:workers", "w", json.dumps({**taker, "seen_ms": seen_ms}))
        code, lines = fsck(url)
        assert (code, len(lines)) == (0, 1)
        assert re.fullmatch(r"checked \d+ keys of 1 session: no findings", lines[0])
        redis_client.delete("lh:ready")
        code, lines = fsck(url)
        what = f"{session}: loop~1[1]/do is ready, but no message to a worker is scheduled"
        assert (code, lines[0]) == (3, f"found   hint_lost: {what}")
        assert lines[1].endswith("1 found, 0 fixed, 1 left; repair with: leadhand fsck --repair")
        code, lines = fsck(url, "--repair", "--json")
        told = json.loads("\n".join(lines))
        assert (code, told["found"], told["left"]) == (0, 1, 0)
        assert told["items"][0]["mended"] is True
        assert fsck(url)[0] == 0
        assert redis_client.zcard("lh:ready") == 1


@pytest.mark.timeout(120)
def test_folders_that_no_worker_compares_are_no_damage(
    tmp_path: Path, store_url: str, broker_url: str, redis_client, fsck, monkeypatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.2)
    with running(tmp_path, store_url, LEADHAND_BROKER_URL=broker_url) as url:
        taker = {"place": "local", "queues": ["tools@local"], "roots": [], "schema_version": 99}
        seen_ms = int(redis_client.time()[0]) * 1000
        redis_client.hset("lh:workers", "w", json.dumps({**taker, "seen_ms": seen_ms}))
        code, lines = fsck(url, "--worktrees")
    assert lines[0].startswith(
        "note    worktrees_unchecked: the folders at local were not compared"
    )
    assert (code, "no findings" in lines[-1]) == (0, True)


def test_many_findings_of_one_kind_are_counted() -> None:
    lost = [Finding(kind="hint_lost", session="ab", what=f"s{n} is ready") for n in range(30)]
    double = Finding(kind="owner_double", session="cd", what="x", way="stop one of them")
    lines = fsck_lines(FsckView(items=[*lost, double], found=31, left=31, keys=9, sessions=2))
    assert len(lines) == 20 + 2 + 1 + 1
    assert lines[-4:] == [
        "found   owner_double: cd: x",
        "        fix: stop one of them",
        "... 10 more of hint_lost",
        "checked 9 keys of 2 sessions: 31 found, 0 fixed, 31 left",
    ]
