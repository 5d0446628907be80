"""A real API process on loopback, and a wire to it that breaks."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx2

from tests.serve_memory import TOKEN
from tests.waiting import wait_until

ROOT = Path(__file__).parent.parent
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
#: A session id that the wire lets through unchanged.
LOOP = {"kind": "loop", "task": "write it", "checker": "true"}


class Served(NamedTuple):
    """A process that serves, and how to reach it."""

    url: str
    port: int
    process: subprocess.Popen[bytes]

    def move(self, path: str, **params: int) -> None:
        """Move the engine behind the API."""
        answer = httpx2.post(f"{self.url}/test/{path}", headers=HEADERS, params=params)
        assert answer.status_code == 204, answer.text

    def submit(self) -> str:
        """A new session's id."""
        answer = httpx2.post(f"{self.url}/v1/sessions", headers=HEADERS, json=LOOP)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])


@contextmanager
def served(*, threads: int = 16, streams: int = 8) -> Iterator[Served]:
    """The API in a process of its own, on a port that was free when it began."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        fd = listener.fileno()
        command = [sys.executable, "-P", "-m", "tests.serve_memory", str(fd), str(threads)]
        process = subprocess.Popen([*command, str(streams)], pass_fds=[fd], cwd=ROOT)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _answers(url))
        yield Served(url, port, process)
    finally:
        process.terminate()
        process.wait(timeout=15)


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
    """Carry bytes one way until there are no more, or the budget is spent; then hang up both."""
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
