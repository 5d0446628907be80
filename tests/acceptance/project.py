"""A folder as its user has it: files, the `leadhand` command, and the API of its own services."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import httpx2
import psutil
import pytest

from leadhand.cli import cli
from leadhand.cli.entrypoint import run
from tests.processes import kill
from tests.waiting import wait_until

BIN = Path(sys.executable).parent

#: Writes what its checkers look for once it has read feedback.
LEARNS = """
import os, pathlib, sys
if "Checker Feedback" in sys.stdin.read():
    pathlib.Path("good.txt").write_text("good")
print("turn", os.environ["LEADHAND_ITERATION"])
"""
#: Runs until somebody writes `go`; leaves a line for each of its starts.
WAITS = """
import os, pathlib, time
with open("starts", "a") as starts:
    print(os.environ["LEADHAND_STEP"], file=starts, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.02)
print("went")
"""


class Ended(NamedTuple):
    """The output and the exit code of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        """The one JSON object that standard output is."""
        return json.loads(self.out)


class Project:
    """A working folder with a state folder of its own; nothing of it runs after `close`."""

    def __init__(self, folder: Path, **env: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.state = folder, folder.with_name(f"{folder.name}.state")
        kept = {name: text for name, text in os.environ.items() if "LEADHAND" not in name}
        self.env = {
            **kept,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "LEADHAND_LEASE_S": "1.5",
            # Bodies of tests wait for a file: a worker that ends need not wait for them.
            "LEADHAND_DRAIN_S": "0.5",
            "LEADHAND_CONCURRENCY": "2",
            "LEADHAND_LINGER": "10",
            "LEADHAND_HOME": str(self.state),
            **env,
        }
        self._begun: list[subprocess.Popen[str]] = []

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def lines(self, name: str) -> list[str]:
        """The lines of a file, none where it is not there yet."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def leadhand(self, *arguments: str, timeout: float = 25) -> Ended:
        """Run a command to its end."""
        return self.ended(self.begin(*arguments), timeout=timeout)

    def leadhand_here(self, *arguments: str) -> Ended:
        """Run a command to its end in this process, which spares the start of another one."""
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with pytest.MonkeyPatch.context() as patch:
            for name in os.environ.keys() - self.env.keys():
                patch.delenv(name)
            for name, text in self.env.items():
                patch.setenv(name, text)
            patch.chdir(self.folder)
            patch.setattr(sys, "stdin", io.StringIO())
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = run(cli, arguments)
        out.flush()
        err.flush()
        return Ended(code, *(one.buffer.getvalue().decode() for one in (out, err)))

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, as a shell does."""
        return self.start([str(BIN / "leadhand"), *arguments])

    def start(
        self, command: Sequence[str], *, output: IO[str] | int = subprocess.PIPE, **env: str
    ) -> subprocess.Popen[str]:
        """Start a program in the folder."""
        process = subprocess.Popen(
            command,
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            text=True,
            start_new_session=True,
        )
        self._begun.append(process)
        return process

    def ended(self, process: subprocess.Popen[str], timeout: float = 25) -> Ended:
        out, err = process.communicate(timeout=timeout)
        return Ended(process.returncode, out, err)

    def detached(self, *arguments: str) -> str:
        """Spawn a session and leave it running; its id."""
        ended = self.leadhand("spawn", "do it", "--detach", *arguments)
        assert ended.code == 0, ended.err
        return ended.out.strip()

    def sessions(self) -> list[dict[str, Any]]:
        """What `ls` lists of this folder."""
        found: list[dict[str, Any]] = self.leadhand("ls", "--json").json()["items"]
        return [session for session in found if session["cwd"] == str(self.folder)]

    @property
    def run(self) -> dict[str, Any]:
        """Where the folder's services are; empty where they are not up."""
        try:
            found: dict[str, Any] = json.loads((self.state / "run.json").read_text())
        except FileNotFoundError:
            return {}
        return found

    def up(self) -> httpx2.Client:
        """Keep the services running by `leadhand up`; a client with their token."""
        process = self.begin("up")
        wait_until(lambda: self.run.get("ready") == "all" or process.poll() is not None, timeout=20)
        assert process.poll() is None, process.communicate()
        return self.api()

    def api(self) -> httpx2.Client:
        """A client of the services that run now."""
        bearer = {"Authorization": f"Bearer {self.run['token']}"}
        return httpx2.Client(base_url=self.run["url"], headers=bearer, trust_env=False, timeout=10)

    def tree(self) -> list[psutil.Process]:
        """The supervisor and all that descends from it."""
        return [one for pid in self._supervisors() for one in _family(pid)]

    def close(self) -> None:
        """End every process that this folder began, as a power cut would: it is the fastest."""
        for pid in self._supervisors():
            kill(_family(pid))
        self.close_commands()

    def close_commands(self) -> None:
        for process in self._begun:
            if process.poll() is None:
                kill(_family(process.pid))
            process.communicate(timeout=10)

    def _supervisors(self) -> Iterator[int]:
        """The processes that supervise this very folder."""
        home = str(self.state)
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "leadhand.local.supervisor" in words and home in words:
                yield process.pid
        pid = self.run.get("pid")
        if pid in [process.pid for process in self._begun if process.poll() is None]:
            yield int(pid)


class Guest(Project):
    """A working folder whose commands use the services of another one."""

    def __init__(self, folder: Path, host: Project) -> None:
        super().__init__(folder, LEADHAND_HOME=str(host.state))
        self.state = host.state
        self.env = {**host.env, "LEADHAND_HOME": str(host.state)}

    def close(self) -> None:
        """End the commands, and abort the active sessions."""
        self.close_commands()
        with self.api() as client:
            for session in client.get("/v1/sessions?status=active").json()["items"]:
                client.post(f"/v1/sessions/{session['id']}/abort", json={})


def outcomes(client: httpx2.Client, session: str) -> dict[str, int]:
    """How many outcomes were recorded at each address."""
    counted: dict[str, int] = {}
    for event in pages(client, f"/v1/sessions/{session}/events", by="after"):
        if event["type"] == "step.settled":
            counted[event["address"]] = counted.get(event["address"], 0) + 1
    return counted


def pages(client: httpx2.Client, path: str, *, by: str = "cursor") -> Iterator[dict[str, Any]]:
    """All items of a list, over as many pages as there are."""
    query: dict[str, str] = {"limit": "20"}
    while True:
        page = client.get(path, params=query).json()
        yield from page["items"]
        if page["next"] is None:
            return
        query[by] = page["next"]


def _family(pid: int) -> list[psutil.Process]:
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []
