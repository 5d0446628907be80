"""Machines of the test's own: network namespaces with one cable each, or else just processes."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import socketserver
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Protocol
from urllib.parse import urlsplit

from tests.fleet import Fleet


class Refused(Exception):
    """There are no such machines to be had here."""


class Machine(Protocol):
    """Where one worker runs that can be lost."""

    def boot(self, fleet: Fleet, name: str, **env: str) -> None:
        """Start a worker on it."""

    def vanish(self) -> None:
        """Cut it off from the fleet."""

    def comes_back(self) -> bool:
        """Whether its worker sends heartbeats again."""

    def close(self) -> None: ...


class Killed:
    """A worker's process on this host; it vanishes by SIGKILL."""

    def boot(self, fleet: Fleet, name: str, **env: str) -> None:
        self._process = fleet.worker(name, **env)

    def vanish(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def comes_back(self) -> bool:
        return False

    def close(self) -> None:
        pass


class Namespace:
    """A network namespace with one cable to this host; it vanishes when that is pulled."""

    def __init__(self, number: int) -> None:
        self.name = f"lh-{os.getpid()}-{number}"
        self._cable = f"lh{os.getpid() % 10**8}n{number}"
        # A network of its own among those that only this host sees.
        self._net = f"10.{200 + os.getpid() % 50}.{os.getpid() // 50 % 250}.{number * 4}"
        self._relays: list[Relay] = []
        self._ip("netns", "add", self.name)
        try:
            self._lay_cable()
        except Refused:
            self.close()
            raise

    def _lay_cable(self) -> None:
        self._ip("link", "add", self._cable, "type", "veth", "peer", "e0", "netns", self.name)
        self._ip("address", "add", f"{self._at(1)}/30", "dev", self._cable)
        self._ip("link", "set", self._cable, "up")
        self._ip("-netns", self.name, "address", "add", f"{self._at(2)}/30", "dev", "e0")
        self._ip("-netns", self.name, "link", "set", "e0", "up")
        self._ip("-netns", self.name, "link", "set", "lo", "up")

    def boot(self, fleet: Fleet, name: str, **env: str) -> None:
        within = ("ip", "netns", "exec", self.name)
        fleet.worker(name, within=within, **self._reached(fleet.env), **env)

    def vanish(self) -> None:
        self._ip("link", "set", self._cable, "down")

    def comes_back(self) -> bool:
        self._ip("link", "set", self._cable, "up")
        return True

    def close(self) -> None:
        for relay in self._relays:
            relay.close()
        for process in self._ip("netns", "pids", self.name).split():
            with suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        self._ip("netns", "delete", self.name)  # and its end of the cable, so the whole cable

    def _reached(self, env: Mapping[str, str]) -> dict[str, str]:
        """The addresses of state and broker as they are from there."""
        names = ("LEADHAND_REDIS_URL", "LEADHAND_BROKER_URL")
        port = urlsplit(env[names[0]]).port
        relay = Relay(self._at(1), port or 0)
        self._relays.append(relay)
        here, there = f"127.0.0.1:{port}", f"{self._at(1)}:{relay.port}"
        return {name: env[name].replace(here, there) for name in names}

    def _at(self, number: int) -> str:
        start, _, last = self._net.rpartition(".")
        return f"{start}.{int(last) + number}"

    def _ip(self, *words: str) -> str:
        program = shutil.which("ip")
        if program is None:
            raise Refused("`ip` (iproute2) is not installed")
        done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Refused(f"`ip {' '.join(words)}` says: {done.stderr.strip()}")
        return done.stdout


class Relay:
    """Forwards connections to another local address to a port of loopback."""

    def __init__(self, address: str, port: int) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with socket.create_connection(("127.0.0.1", port)) as there:
                    back = threading.Thread(target=_pour, args=(there, self.request), daemon=True)
                    back.start()
                    _pour(self.request, there)

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False

        self._server = Server((address, 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def _pour(source: socket.socket, into: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            into.sendall(data)
    for end in (source, into):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
