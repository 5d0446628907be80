"""The fleet on the command line: plain lines in a pipe, a live picture on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from tests.scripted_api import FLEET, TOKEN, Script, scripted_api
from tests.waiting import wait_until

Leadhand = Callable[..., list[str]]

TOP = """\
sessions: 2 active, 1 failed
overdue: 2 leases for 1m30s; is a sweeper running?

QUEUE         DEPTH  READY  OLDEST  RUNNING  SLOTS  WORKERS
agents@local  3      2      1m15s   1        4      1
gpu           1      1      5s      0        0      none: start one that consumes it

WORKER  PLACE  HOST  LOAD  SEEN  AGENTS
w1      local  h1    1/4   10s
  0000000a loop~1[1]/do (agent a label) for 10s, attempt 2
"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted_api() as (url, script):
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        yield script


@pytest.fixture
def leadhand(script: Script, capsys: pytest.CaptureFixture[str]) -> Leadhand:
    def leadhand(*arguments: str) -> list[str]:
        assert run(cli, arguments) == 0
        return capsys.readouterr().out.splitlines()

    return leadhand


@pytest.mark.parametrize("options", [(), ("--once",)])
def test_top_in_a_pipe_looks_once(leadhand: Leadhand, options: tuple[str, ...]) -> None:
    assert leadhand("top", *options) == TOP.splitlines()


def test_queues_name_those_that_nobody_takes_from(leadhand: Leadhand) -> None:
    assert leadhand("queues") == TOP.splitlines()[3:6]


def test_workers_are_listed(leadhand: Leadhand) -> None:
    head, line = leadhand("workers")
    assert head.split() == ["WORKER", "PLACE", "HOST", "LOAD", "SEEN", "AGENTS"]
    assert line.split() == ["w1", "local", "0/0", "-"]


def test_agents_are_listed_with_why_one_cannot_be_used(leadhand: Leadhand) -> None:
    head, claude, why, small, tools = leadhand("agents")
    assert head.split() == ["AGENT", "KIND", "USABLE", "AT", "COMMAND"]
    assert claude.split()[:3] == ["claude", "command", "nowhere"]
    assert why == "  not at local: the program 'claude' is not found"
    assert small.split()[:4] == ["small", "(default)", "model", "local"]
    assert tools.startswith("tools over MCP: ")


@pytest.mark.parametrize("command", ["top", "queues", "workers", "agents"])
def test_each_is_one_object_as_json(leadhand: Leadhand, command: str) -> None:
    told = json.loads("\n".join(leadhand(command, "--json")))
    assert isinstance(told, dict)
    if command == "top":
        assert told["leases"] == FLEET["leases"]


def test_top_on_a_terminal_stays_until_ctrl_c(script: Script, tmp_path: Path) -> None:
    near, far = pty.openpty()
    program = "import sys; from leadhand.cli import main; main(sys.argv[1:])"
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", program, "top", "--every", "0.2"],
        stdin=far, stdout=far, stderr=far, cwd=tmp_path, close_fds=True,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"},
    )  # fmt: skip
    os.close(far)
    seen = b""

    def looked_twice() -> bool:
        nonlocal seen
        seen += os.read(near, 65536)
        return seen.count(b"sessions: 2 active") >= 2

    try:
        wait_until(looked_twice)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
    finally:
        process.kill()
        process.wait()
        os.close(near)
    assert b"\x1b[?1049h" in seen, "it has a screen of its own"
