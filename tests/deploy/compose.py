"""Runs what docker-compose.yml says as plain processes: its commands, its environment, no engine.

What an engine would do is done here: names of services become loopback, ports become free ones,
and mounts become folders of the test's.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from leadhand.local.processes import free_port
from tests import servers
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent.parent
_HOSTS = r"\b(redis|api|flower)(?=:(6379|8765|5555)\b)|0\.0\.0\.0"
_PORTS = ("6379", "8765", "5555")
_VARIABLE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")
#: The image has the client program; the packaged server comes without, so this stands in.
_CLIENT = """#!{python}
import os, sys, redis
at = sys.argv.index
client = redis.Redis(port=int(sys.argv[at("-p") + 1]), username=sys.argv[at("--user") + 1],
                     password=os.environ["REDISCLI_AUTH"])
print("PONG" if client.execute_command(sys.argv[-1]) else "")
"""


class Container:
    """One process where compose would start a container."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], cwd: Path) -> None:
        self.name = name
        self._command = command
        self._env = env
        self._cwd = cwd
        self.process = self._started()

    def restart(self) -> None:
        """What `restart: always` does once it has ended."""
        assert self.process.poll() is not None
        self.process = self._started()

    def kill(self) -> None:
        """As when the container is gone: all of its processes at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def terminate(self, within_s: float) -> int:
        """What `docker compose stop` does; the exit code."""
        self.process.terminate()
        return self.process.wait(timeout=within_s)

    def _started(self) -> subprocess.Popen[bytes]:
        with (self._cwd.parent / f"{self.name}.log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                cwd=self._cwd,
                env=self._env,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )


class Topology:
    """The services of the file on loopback."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.environment = environment
        self.file: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
        self.services: dict[str, Any] = self.file["services"]
        self.ports = {port: str(free_port(0)) for port in _PORTS}
        self.work = self._folder("work")
        self._programs = self._folder("programs")
        (self._programs / "valkey-server").symlink_to(servers.chosen().path)
        client = self._programs / "valkey-cli"
        client.write_text(_CLIENT.format(python=sys.executable))
        client.chmod(0o755)
        self.containers: dict[str, list[Container]] = {}

    def url(self, port: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}"

    def up(self, *names: str) -> None:
        """Start these services, or all: each once those that it depends on are healthy."""
        waiting = {name: self.services[name] for name in names or self.services}
        while waiting:
            name = next(n for n in waiting if not self._needed_by(n) & {*waiting})
            self.start(name)
            del waiting[name]
        for name in names or self.services:
            self.wait_until_healthy(name)

    def start(self, name: str) -> None:
        """As many containers of a service as the file wants."""
        service = self.services[name]
        for depended in self._needed_by(name):
            self.wait_until_healthy(depended)
        replicas = service.get("deploy", {}).get("replicas", 1)
        command = [self._argument(name, word) for word in service["command"]]
        self.containers[name] = [
            Container(f"{name}-{number}", command, self.env(name), self.work)
            for number in range(1, replicas + 1)
        ]

    def add(self, name: str, **env: str) -> Container:
        """One more container of a service; another environment stands for another image."""
        there = self.containers.setdefault(name, [])
        command = [self._argument(name, word) for word in self.services[name]["command"]]
        number = f"{name}-{len(there) + 1}"
        there.append(Container(number, command, {**self.env(name), **env}, self.work))
        return there[-1]

    def retire(self, name: str, within_s: float = 60) -> None:
        """Stop all containers of a service in order; each one has to end well."""
        for container in self.containers.pop(name):
            assert container.terminate(within_s) == 0

    def env(self, name: str) -> dict[str, str]:
        """What a container of this service has for its environment."""
        given = self.services[name]["environment"]
        path = os.pathsep.join((str(self._programs), "/usr/local/bin", "/usr/bin", "/bin"))
        measured = {n: v for n, v in os.environ.items() if n.startswith(("COVERAGE_", "PYTHON"))}
        own = {n: self._argument(name, str(value)) for n, value in given.items()}
        return {"PATH": path, "HOME": str(self.folder), **measured, **own}

    def sickness(self, name: str) -> str | None:
        """What the service's own health check complains of; None where it is healthy."""
        kind, *words = self.services[name]["healthcheck"]["test"]
        command = [self._argument(name, word) for word in words]
        done = subprocess.run(
            command if kind == "CMD" else ["sh", "-c", *command],
            cwd=self.work, env=self.env(name), capture_output=True, timeout=20, check=False,
        )  # fmt: skip
        return None if done.returncode == 0 else (done.stdout + done.stderr).decode() or "?"

    def wait_until_healthy(self, name: str) -> None:
        said: list[str | None] = []

        def healthy() -> bool:
            said[:] = [self.sickness(name)]
            return said == [None]

        try:
            wait_until(healthy, timeout=25)
        except AssertionError as error:
            raise AssertionError(f"{name} is not healthy: {said[0]}") from error

    def close(self) -> None:
        for container in [c for those in reversed(self.containers.values()) for c in those]:
            if container.process.poll() is None:
                container.kill()

    def _needed_by(self, name: str) -> set[str]:
        return set(self.services[name].get("depends_on", ()))

    def _argument(self, service: str, text: str) -> str:
        """A word of the file as it holds here."""
        if text == "python":
            return sys.executable
        text = _VARIABLE.sub(self._value, text)
        text = re.sub(_HOSTS, "127.0.0.1", text)
        for port, free in self.ports.items():
            text = re.sub(rf"\b{port}\b", free, text)
        for mount in self.services[service].get("volumes", ()):
            source, target, *_ = mount.split(":")
            here = ROOT / source if source.startswith(".") else self._folder(source)
            text = re.sub(rf"(?<![\w.]){target}(?![\w-])", str(here), text)
        return text

    def _value(self, match: re.Match[str]) -> str:
        name, operator, word = match.groups()
        value = self.environment.get(name, "")
        if not value and operator == "?":
            raise AssertionError(f"{name} is not in the environment: {word}")
        return value or (word if operator == "-" else "")

    def _folder(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder


def new_environment(**changed: str) -> dict[str, str]:
    """What the operator's script writes into .env, with some values changed by hand."""
    script = ROOT / "deploy" / "new-environment.sh"
    lines = subprocess.run(
        ["sh", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines) | changed
