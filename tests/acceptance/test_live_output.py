"""Live output: a user reads what a doer and its checkers write while they run."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.acceptance.conftest import MakeProject
from tests.acceptance.project import Project
from tests.processes import kill, words
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.timeout(180),  # stacks that are killed and start again
]

#: Writes a number each tenth of a second until somebody writes `go`.
COUNTS = """
import itertools, pathlib, sys, time
print("begun", flush=True)
for number in itertools.count():
    print("number", number, flush=True)
    if pathlib.Path("go").exists():
        break
    time.sleep(0.1)
print("ended", file=sys.stderr, flush=True)
"""
ADDRESS = "loop~1[1]/do"


class Watcher:
    """`leadhand logs --output` of a session, which writes to a file."""

    def __init__(self, project: Project, session: str) -> None:
        self.path: Path = project.state.with_name("watched.txt")
        with self.path.open("w", encoding="utf-8") as file:
            command = ["leadhand", "logs", "--output", session]
            self.process: subprocess.Popen[str] = project.start(command, output=file)

    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    def numbers(self) -> list[int]:
        pattern = rf"^{re.escape(ADDRESS)} \| number (\d+)$"
        return [int(found) for found in re.findall(pattern, self.text(), re.MULTILINE)]

    def has_seen(self, count: int) -> None:
        wait_until(lambda: len(self.numbers()) >= count, timeout=60)


def begin(project: Project) -> tuple[str, Watcher]:
    project.write("counts.py", COUNTS)
    session = project.detached("--doer", "python counts.py", "--checker", "echo looks good")
    watcher = Watcher(project, session)
    watcher.has_seen(3)
    return session, watcher


def end(project: Project, session: str, watcher: Watcher) -> None:
    (project.folder / "go").touch()
    assert watcher.process.wait(timeout=60) == 0
    assert project.leadhand("wait", session).code == 0


def test_lines_are_shown_before_the_step_ends_and_can_be_read_afterwards(project: Project) -> None:
    session, watcher = begin(project)
    explained = project.leadhand("explain", session).out
    assert re.search(r"last output \d s ago", explained), explained
    end(project, session, watcher)
    seen = watcher.numbers()
    assert seen == list(range(len(seen)))
    assert f"{ADDRESS} ! ended" in watcher.text()
    assert re.search(r"check\S* \| looks good", watcher.text())
    shown = project.leadhand("show", session, "--output", ADDRESS)
    assert shown.code == 0
    assert shown.out.splitlines()[0] == f"{ADDRESS} | begun"
    missing = project.leadhand("show", session, "--output", "nowhere")
    assert missing.code == 1
    _, _, kept = missing.err.strip().partition("output is kept of: ")
    assert ADDRESS in kept.split(", "), missing.err


@pytest.mark.slow
def test_a_secret_of_an_agent_is_never_shown(make_project: MakeProject) -> None:
    project = make_project(MY_KEY="correct-horse-battery")
    project.write(
        "leaks.py",
        "import os, sys, time\n"
        "key = os.environ['MY_KEY']\n"
        "for text in ('the key is ', key[:9], key[9:], ' indeed\\n', 'done\\n'):\n"
        "    sys.stdout.write(text); sys.stdout.flush(); time.sleep(0.4)\n",
    )
    project.write(
        "agents.toml",
        '[agents.leaky]\ncommand = ["python", "leaks.py"]\nenv = ["MY_KEY"]\n',
    )
    session = project.detached("--agent", "leaky", "--checker", "true")
    watcher = Watcher(project, session)
    assert watcher.process.wait(timeout=60) == 0
    assert f"{ADDRESS} | the key is [redacted] indeed" in watcher.text()
    assert "correct" not in watcher.text()
    assert "battery" not in watcher.text()


@pytest.mark.slow
def test_a_stream_goes_on_after_the_api_and_redis_were_killed(make_project: MakeProject) -> None:
    alone = make_project(LEADHAND_LEASE_S="30")  # so that the attempt outlives the outage
    session, watcher = begin(alone)
    for service in ("api", "redis"):
        before = len(watcher.numbers())
        victims = [one for one in alone.tree() if _is(one, service)]
        assert victims, [words(one) for one in alone.tree()]
        kill(victims)
        watcher.has_seen(before + 10)
    end(alone, session, watcher)
    seen = watcher.numbers()
    assert seen == sorted(set(seen)), "a line was shown twice"
    missing = set(range(seen[-1])) - set(seen)
    assert not missing or "dropped]" in watcher.text() or "no longer kept]" in watcher.text()


@pytest.mark.slow
def test_the_output_of_a_lost_attempt_is_not_shown_as_the_next_ones(alone: Project) -> None:
    session, watcher = begin(alone)
    with alone.api() as client:
        (worker,) = client.get("/v1/workers").json()["items"]
    os.kill(worker["pid"], signal.SIGKILL)
    wait_until(lambda: watcher.text().count(f"{ADDRESS} | begun") == 2, timeout=60)
    before = len(watcher.numbers())
    watcher.has_seen(before + 3)
    with alone.api() as client:
        views = client.get(f"/v1/sessions/{session}/output", params={"step": ADDRESS}).json()
    second, first = views["items"]
    assert (second["running"], first["running"]) == (True, False)
    assert second["fence"] > first["fence"]
    assert second["parts"][0]["text"].startswith("begun\n")
    end(alone, session, watcher)


def _is(process: psutil.Process, service: str) -> bool:
    line = words(process)
    if service == "redis":
        return any("valkey" in word or "redis-server" in word for word in line[:1])
    return "leadhand.serve" in line and "api" in line
