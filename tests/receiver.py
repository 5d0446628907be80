"""A receiver of webhooks on loopback, which answers as a test tells it to."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple


class Received(NamedTuple):
    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """The received requests, and the statuses to return: one each, the last one repeats."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.statuses = [200]
        self.location = ""
        #: Cleared: requests wait without a response.
        self.answers = threading.Event()
        self.answers.set()
        #: Sent instead of an answer, a byte at a time.
        self.drips = b""
        self.url = ""
        self.host = ""

    def status(self) -> int:
        return self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]


class Server(ThreadingHTTPServer):
    """Hands what comes to the receiver."""

    daemon_threads = True

    def __init__(self, told: Receiver) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.told = told
        self.over = threading.Event()


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        told = self.server.told
        body = self.rfile.read(int(self.headers["Content-Length"]))
        told.received.append(Received(self.path, dict(self.headers.items()), body))
        told.answers.wait(timeout=20)
        with suppress(OSError):  # the client may have disconnected
            self._drip(told.drips) if told.drips else self._answer(told)

    def _answer(self, told: Receiver) -> None:
        self.send_response(told.status())
        if told.location:
            self.send_header("Location", told.location)
        self.end_headers()

    def _drip(self, drips: bytes) -> None:
        for at in range(len(drips)):
            self.wfile.write(drips[at : at + 1])
            self.wfile.flush()
            if self.server.over.wait(0.05):
                return

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def receiver(context: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Serve until the test is over."""
    told = Receiver()
    server = Server(told)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    told.host = f"127.0.0.1:{server.server_port}"
    told.url = f"http://{told.host}/hook?who=me"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield told
    finally:
        server.over.set()
        told.answers.set()
        server.shutdown()
        server.server_close()
        thread.join()
