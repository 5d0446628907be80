"""A worker process that drops connections whose events are in the batch that it is handling.

The worker is stopped, so that a new connection and then events of older ones arrive in one batch.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from leadhand.local.processes import free_port
from tests.waiting import wait_until

CONNECTIONS = 6
SERVER = """
import json, os, sys, time
from gunicorn.app.base import BaseApplication
from api.wire.buffering_worker import BufferingWorker

class Worker(BufferingWorker):
    def init_process(self):
        global worker
        worker = self
        super().init_process()

def application(environ, start_response):
    if environ["PATH_INFO"] == "/slow":
        time.sleep(2)
    state = {"process": os.getpid(), "connections": worker.nr_conns}
    body = b"x" * 13_000_000 if environ["PATH_INFO"] == "/large" else json.dumps(state).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]

class Application(BaseApplication):
    def load_config(self):
        settings = {
            "bind": "127.0.0.1:" + sys.argv[1], "workers": 1, "threads": 2,
            "worker_connections": int(sys.argv[2]), "worker_class": Worker,
            "graceful_timeout": 10, "control_socket_disable": True,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)
    def load(self):
        return application

Application().run()
"""


class Api:
    """A gunicorn of one worker process."""

    def __init__(self, port: int, folder: Path) -> None:
        self._address = ("127.0.0.1", port)
        root = Path(__file__).parents[3]
        with (folder / "log").open("wb") as log:
            self._arbiter = subprocess.Popen(
                [sys.executable, "-c", SERVER, str(port), str(CONNECTIONS)], cwd=root, stderr=log
            )
        state = wait_until(self._state_or_none, timeout=30)
        assert state is not None
        self.worker = state["process"]

    def connect(self) -> socket.socket:
        return socket.create_connection(self._address, timeout=10)

    def state(self) -> dict[str, int]:
        """The worker's process and its connections, this one included."""
        with self.connect() as connection:
            return ask_state(connection, "close")

    def _state_or_none(self) -> dict[str, int] | None:
        try:
            return self.state()
        except OSError:
            return None

    def stop(self) -> None:
        self._arbiter.terminate()
        assert self._arbiter.wait(timeout=20) == 0


def ask(connection: socket.socket, path: str, after: str) -> None:
    connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: {after}\r\n\r\n".encode())


def ask_state(connection: socket.socket, after: str) -> dict[str, int]:
    ask(connection, "/state", after)
    received = b""
    while not received.endswith(b"}"):
        piece = connection.recv(65536)
        if not piece:
            raise ConnectionResetError
        received += piece
    state: dict[str, int] = json.loads(received.partition(b"\r\n\r\n")[2])
    return state


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    api = Api(free_port(), tmp_path)
    yield api
    api.stop()


def connect_last(api: Api) -> socket.socket:
    """The last connection that the process takes without dropping another."""
    connection = api.connect()
    assert ask_state(connection, "keep-alive")["connections"] == CONNECTIONS - 1
    return connection


def test_worker_that_drops_half_sent_requests_counts_its_connections(api):
    kept = [api.connect() for _ in range(CONNECTIONS - 2)]
    for connection in kept:
        connection.sendall(b"GET / HT")
    kept.append(connect_last(api))
    os.kill(api.worker, signal.SIGSTOP)
    kept.append(api.connect())
    for connection in kept:
        connection.sendall(b"T")
    os.kill(api.worker, signal.SIGCONT)
    with suppress(ConnectionResetError):
        assert kept[0].recv(1) == b""
    for connection in kept:
        connection.close()
    wait_until(lambda: api.state() == {"process": api.worker, "connections": 1})


@pytest.mark.slow
def test_worker_that_drops_unread_responses_ends_no_other_request(api):
    readers = [api.connect() for _ in range(CONNECTIONS - 2)]
    for reader in readers:
        ask(reader, "/large", "keep-alive")
        reader.recv(1, socket.MSG_PEEK)
    in_thread = connect_last(api)
    ask(in_thread, "/slow", "close")
    os.kill(api.worker, signal.SIGSTOP)
    new = api.connect()
    for reader in readers:
        read_what_is_there(reader)
    os.kill(api.worker, signal.SIGCONT)
    assert in_thread.recv(12) == b"HTTP/1.1 200"
    for connection in (*readers, in_thread, new):
        connection.close()
    assert api.state()["process"] == api.worker


def read_what_is_there(reader: socket.socket) -> None:
    """Read until the stopped process's part of the response has been received."""
    reader.settimeout(0.2)
    with suppress(TimeoutError):
        while reader.recv(1 << 20):
            pass
