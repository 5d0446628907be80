"""A real API process on loopback over a real Redis, and wires to both that break."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx2

from app.engine import Engine
from tests.redis_users import of_broker
from tests.silent_engine import silent_engine
from tests.waiting import wait_until
from tests.wire import Wire

ROOT = Path(__file__).parent.parent
TOKEN = "the operator's own"
SECRET = "signs what sessions run"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
LOOP = {
    "kind": "loop",
    "task": "write it",
    "baseline": False,
    "checker": "true",
    "doer": {"command": "true"},
}
#: The fewest threads that an API process may have, and the event streams that it then serves.
FEW_THREADS, FEW_STREAMS = 24, 8


class Served(NamedTuple):
    """An API process, how to reach it, and an engine of the test's own on the same Redis."""

    url: str
    port: int
    process: subprocess.Popen[bytes]
    engine: Engine
    #: Between the API and its Redis.
    wire: Wire

    def submit(self) -> str:
        """A new session's id."""
        answer = httpx2.post(f"{self.url}/v1/sessions", headers=HEADERS, json=LOOP)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


@contextmanager
def served(store_url: str, *, threads: int = 64) -> Iterator[Served]:
    """The API in a process of its own, on a port that was free when it began."""
    with Wire(store_url) as wire:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            process = _start(listener.fileno(), wire.url, store_url, threads)
        url = f"http://127.0.0.1:{port}"
        try:
            wait_until(lambda: _answers(url) or process.poll() is not None, timeout=25)
            yield Served(url, port, process, silent_engine(store_url, secret=SECRET), wire)
        finally:
            process.terminate()
            process.wait(timeout=15)


def _start(fd: int, redis_url: str, store_url: str, threads: int) -> subprocess.Popen[bytes]:
    env = {
        **{name: text for name, text in os.environ.items() if not name.startswith("LEADHAND_")},
        "LEADHAND_REDIS_URL": redis_url,
        "LEADHAND_BROKER_URL": of_broker(store_url),
        "LEADHAND_API_TOKEN": TOKEN,
        "LEADHAND_SECRET": SECRET,
        "LEADHAND_API_BIND": f"fd://{fd}",
        "LEADHAND_API_THREADS": str(threads),
    }
    command = [sys.executable, "-P", "-m", "leadhand.serve", "api"]
    return subprocess.Popen(command, pass_fds=[fd], cwd=ROOT, env=env)


class BreakingWire:
    """A TCP proxy that hangs up after so many bytes of answer; `break_after` None lets all by."""

    def __init__(self, port: int) -> None:
        self.break_after: int | None = None
        self.connections = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._open:
            end.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                self.connections += 1
                self._open += [near, far]
                for carry in (lambda n=near, f=far: _pump(n, f, None),
                              lambda n=near, f=far: _pump(f, n, self.break_after)):  # fmt: skip
                    threading.Thread(target=carry, daemon=True).start()


@contextmanager
def breaking_wire(port: int) -> Iterator[BreakingWire]:
    wire = BreakingWire(port)
    try:
        yield wire
    finally:
        wire.close()


def _pump(source: socket.socket, sink: socket.socket, budget: int | None) -> None:
    """Copy bytes in one direction until the end or the budget, then close both sockets."""
    with suppress(OSError):
        while budget is None or budget > 0:
            chunk = source.recv(4096 if budget is None else min(4096, budget))
            if not chunk:
                break
            sink.sendall(chunk)
            budget = None if budget is None else budget - len(chunk)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


def _answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/healthz").is_success
    return False
