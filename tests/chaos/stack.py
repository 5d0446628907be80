"""Everything that a fleet is, as real processes on loopback, each behind wires that can break."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal

import psutil
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from app.engine import Engine
from app.settings import Settings
from leadhand.client.client import Client
from leadhand.local.processes import free_port
from tasks.bootstrap import make_engine
from tests import servers
from tests.chaos import inline_load, killing_git
from tests.chaos.flow_load import AGENT
from tests.redis_users import as_user, lines
from tests.waiting import wait_until
from tests.wire import Wire

TOKEN = "token of the chaos"
SECRET = "secret of the chaos"
_CONFIGURATION = """\
port {port}
bind 127.0.0.1
aclfile users.acl
dir .
appendonly yes
appendfsync always
save ""
maxmemory-policy noeviction
databases 4
"""
_AGENT = """\
[agents.{name}]
command = {command}
resume_args = ["--resume", "{{thread}}"]
output = "lines"
answer = "answer"
thread = "thread"
usage = {{cost_usd = "cost", input_tokens = "in", output_tokens = "out"}}
"""


class Server:
    """A Redis that fsyncs always, and comes back with all that it answered.

    API, workers and broker have the users of deploy/; `url` is for the user who breaks it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir()
        self._port = free_port()
        self._password = secrets.token_hex(16)
        self.process: subprocess.Popen[bytes] | None = None
        self.url = f"redis://:{self._password}@127.0.0.1:{self._port}/0"
        (folder / "redis.conf").write_text(_CONFIGURATION.format(port=self._port))
        users = [line for line in lines() if not line.startswith("user default ")]
        users.append(f"user default on >{self._password} ~* &* +@all")
        (folder / "users.acl").write_text("\n".join(users) + "\n")

    def client(self, db: int = 0) -> Redis:
        """One that gives up soon: whoever breaks the server is not to wait for it."""
        url = self.url.removesuffix("/0") + f"/{db}"
        return Redis.from_url(
            url, decode_responses=True, socket_timeout=2, retry=Retry(NoBackoff(), 0)
        )

    def start(self) -> None:
        with (self._folder / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(servers.chosen().path), "redis.conf"], cwd=self._folder, stdout=log, stderr=log
            )

    def answers(self) -> bool:
        with suppress(RedisError), self.client() as client:
            return bool(client.ping())
        return False

    def signal(self, number: int) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            if number == signal.SIGKILL:
                self.process.wait()


class Member:
    """A worker or an API: one process with children, and its two wires."""

    def __init__(
        self, name: str, kind: Literal["worker", "api"], wires: tuple[Wire, Wire],
        env: Mapping[str, str], folder: Path,
    ) -> None:  # fmt: skip
        self.name = name
        self.kind = kind
        self.wires = wires
        self.env = dict(env)
        self._folder = folder
        self.process: subprocess.Popen[bytes] | None = None
        #: Whether somebody ended it on purpose, or it is about to be started again.
        self.wanted_down = True

    @property
    def log(self) -> Path:
        return self._folder / f"{self.name}.log"

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "leadhand.serve", self.kind],
                cwd=self._folder,
                env=self.env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.wanted_down = False

    def signal(self, number: int) -> None:
        """To the process itself, not to its children."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            if number == signal.SIGKILL:
                self.process.wait()

    def children(self) -> list[psutil.Process]:
        """Its pool, or gunicorn's processes; not the bodies, which have sessions of their own."""
        if self.process is None or self.process.poll() is not None:
            return []
        with suppress(psutil.Error):
            return sorted(psutil.Process(self.process.pid).children(), key=lambda p: p.pid)
        return []

    @property
    def up(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Stack:
    """One Redis, workers at two places and two APIs, beneath one folder."""

    def __init__(self, folder: Path, *, workers: int, lease_s: float) -> None:
        self.folder = folder
        self.lease_s = lease_s
        self.account = folder / "account.jsonl"
        self.account.touch()
        self.body = folder / "body.py"
        self.body.write_text((Path(__file__).parent / "body.py").read_text())
        self.server = Server(folder / "redis")
        self.members: list[Member] = []
        self.clients: list[Client] = []
        self._workers = workers
        self._held = ExitStack()
        self.places = ("left", "right")
        for place in self.places:
            (folder / place).mkdir()
        self._agents = self._write_agents()
        self.tools = folder / "tools"
        killing_git.install(self.tools)
        self._functions = inline_load.install(folder / "functions")

    @contextmanager
    def running(self) -> Iterator[None]:
        """All of it is up; none of it is left afterwards."""
        with self._held:
            self._held.callback(self.end)
            self.server.start()
            wait_until(self.server.answers, timeout=30)
            for number in (1, 2):
                self._add_api(number)
            for number in range(self._workers):
                self._add_worker(number)
            self.engine = self._own_engine()
            for member in self.members:
                member.start()
            wait_until(self._ready, timeout=120)
            yield

    @property
    def workers(self) -> list[Member]:
        return [member for member in self.members if member.kind == "worker"]

    @property
    def apis(self) -> list[Member]:
        return [member for member in self.members if member.kind == "api"]

    def command(self, kind: str, *arguments: object) -> str:
        """A body's command line."""
        words = [sys.executable, "-I", "-S", self.body, self.account, kind, *arguments]
        return " ".join(str(word) for word in words)

    def _write_agents(self) -> Path:
        """The one agent that the flows speak to: a program whose threads all places share."""
        threads, file = self.folder / "threads", self.folder / "agents.toml"
        threads.mkdir()
        words = [sys.executable, "-I", "-S", self.body, self.account, "talk", threads]
        file.write_text(_AGENT.format(name=AGENT, command=json.dumps([str(w) for w in words])))
        return file

    def end(self) -> None:
        """Kill what is left of the fleet itself; bodies must go by themselves."""
        for member in self.members:
            with suppress(ProcessLookupError):
                if member.process is not None:
                    os.killpg(member.process.pid, signal.SIGKILL)
                    member.process.wait()
        self.server.signal(signal.SIGKILL)

    def bodies(self) -> list[psutil.Process]:
        """Every process that runs a body of this run, whoever its parent is now."""
        mark = str(self.body)
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            told = process.info["cmdline"] or []
            if mark in told and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def _add_api(self, number: int) -> None:
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        more = {
            "LEADHAND_API_BIND": f"127.0.0.1:{port}", "LEADHAND_API_URL": url,
            "LEADHAND_API_THREADS": "24",
        }  # fmt: skip
        self._add(f"api{number}", "api", more)
        with (self.folder / "apis").open("a") as apis:
            apis.write(f"127.0.0.1:{port}\n")
        client = Client(url, TOKEN, timeout_s=15, patience_s=90)
        self.clients.append(self._held.enter_context(client))

    def _add_worker(self, number: int) -> None:
        place = self.places[number % len(self.places)]
        name = f"{place}{number // len(self.places) + 1}"
        more = {
            "LEADHAND_WORKER_NAME": name, "LEADHAND_PLACE": place,
            "LEADHAND_ROOTS": str(self.folder / place), "LEADHAND_DRAIN_S": "2",
        }  # fmt: skip
        self._add(name, "worker", more)

    def _add(self, name: str, kind: Literal["worker", "api"], more: Mapping[str, str]) -> None:
        store_wire = self._held.enter_context(Wire(as_user(self.server.url, kind)))
        broker_wire = self._held.enter_context(Wire(as_user(self.server.url, "broker")))
        env = {
            **self._env(store_wire.url, broker_wire.url),
            "LEADHAND_SPILL": str(self.folder / "spill"),
            "LEADHAND_AGENTS": str(self._agents),
            "LEADHAND_TOOLS": str(self._functions),
            **more,
        }
        self.members.append(Member(name, kind, (store_wire, broker_wire), env, self.folder))

    def _env(self, store: str, broker: str) -> dict[str, str]:
        return {
            **{name: value for name, value in os.environ.items() if "LEADHAND" not in name},
            "LEADHAND_REDIS_URL": store,
            "LEADHAND_BROKER_URL": broker,
            "LEADHAND_SECRET": SECRET,
            "LEADHAND_API_TOKEN": TOKEN,
            "LEADHAND_LEASE_S": str(self.lease_s),
            "LEADHAND_CONCURRENCY": "3",
            "LEADHAND_WORKTREES": str(self.folder / "worktrees"),
            "PATH": f"{self.tools}{os.pathsep}{os.environ['PATH']}",
        }

    def _own_engine(self) -> Engine:
        """What no document says yet is started through an engine of our own, on a straight wire."""
        urls = [as_user(self.server.url, user) for user in ("api", "broker")]
        engine, celery = make_engine(Settings.from_env(self._env(*urls)), tries=20)
        self._held.callback(celery.close)
        return engine

    def _ready(self) -> bool:
        there = {worker.name for worker in self.engine.fleet.inventories()}
        return there == {member.name for member in self.workers} and all(map(_serves, self.clients))


def _serves(client: Client) -> bool:
    try:
        client.workers()
    except Exception:  # noqa: BLE001 - it is about to
        return False
    return True


def now() -> float:
    return time.time()
