"""A proxy between a browser and the API that can cut or freeze all connections."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class Proxy:
    """Forwards connections on a port of its own; `with` closes it."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._open: dict[socket.socket, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        #: Whether new connections are closed at once.
        self.refuses = False
        self._run(self._accept)

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join(timeout=30)

    def cut(self) -> None:
        """Close all connections."""
        with self._lock:
            for one, flows in self._open.items():
                flows.set()
                _shut(one)

    def freeze(self) -> None:
        """Forward nothing more on the connections that are open; new ones are forwarded."""
        with self._lock:
            for flows in self._open.values():
                flows.clear()

    def _run(self, function: object, *given: object) -> threading.Thread:
        assert callable(function)
        thread = threading.Thread(target=function, args=given, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.refuses:
                    near.close()
                else:
                    self._run(self._serve, near)

    def _serve(self, near: socket.socket) -> None:
        flows = threading.Event()
        flows.set()
        with near, socket.create_connection(("127.0.0.1", self._target)) as far:
            with self._lock:
                self._open |= {near: flows, far: flows}
            back = self._run(_pump, far, near, flows)
            _pump(near, far, flows)
            back.join()
            with self._lock:
                del self._open[near], self._open[far]


def _pump(source: socket.socket, target: socket.socket, flows: threading.Event) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            flows.wait()
            target.sendall(data)
    _shut(source)
    _shut(target)


def _shut(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
