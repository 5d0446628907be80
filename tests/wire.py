"""A wire to a server that breaks as networks do: silent, cut, held up, reset, and whole again."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

#: Closing so sends a reset instead of a goodbye.
_RESET = struct.pack("ii", 1, 0)


class Wire:
    """A TCP proxy before a Redis, with an address of its own."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (str(parts.hostname), int(parts.port or 6379))
        self._silent = threading.Event()
        self._is_cut = False
        self._flowing = threading.Event()
        self._flowing.set()
        self._links: set[_Link] = set()
        self._lock = threading.Lock()
        self._over = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        port = self._listener.getsockname()[1]
        login, _, _ = parts.netloc.rpartition("@")
        self.url = urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}"))

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._over = True
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._flowing.set()
        for link in self._now():
            link.end()

    def go_silent(self) -> None:
        """Nothing passes from now on, in either direction, on old wires and new ones."""
        self._silent.set()

    def black_hole(self) -> int:
        """Drops the traffic of the present connections without closing them; new ones work.

        Returns the number of dropped connections.
        """
        links = self._now()
        for link in links:
            link.silent = True
        return len(links)

    def hold_up(self) -> None:
        """Nothing passes until the wire heals, and then all of it does."""
        self._flowing.clear()

    def reset(self) -> int:
        """Hang up on everybody; how many they were."""
        links = self._now()
        for link in links:
            link.end(reset=True)
        return len(links)

    def cut(self) -> None:
        """Close all connections, and each new one at once, until the wire heals."""
        self._is_cut = True
        for link in self._now():
            link.end()

    def heal(self) -> None:
        """Deliver held data, reset connections that were cut, and accept new ones."""
        self._is_cut = False
        was_silent = self._silent.is_set()
        self._silent.clear()
        self._flowing.set()
        for link in self._now():
            if link.silent or was_silent:
                link.end(reset=True)

    def _now(self) -> list[_Link]:
        with self._lock:
            return list(self._links)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return  # the wire is not needed any more
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        if self._is_cut:
            near.close()
            return
        try:
            far = socket.create_connection(self._server, timeout=5)
        except OSError:
            near.close()  # the server is away: refuse the client as well
            return
        for end in (near, far):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Link(near, far)
        with self._lock:
            self._links.add(link)
        if self._over or self._is_cut:
            link.end()
        back = threading.Thread(target=self._pump, args=(link, far, near), daemon=True)
        back.start()
        self._pump(link, near, far)
        back.join()
        link.end()
        with self._lock:
            self._links.discard(link)

    def _pump(self, link: _Link, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flowing.wait()
                if not (self._silent.is_set() or link.silent):
                    sink.sendall(data)
            if not (self._silent.is_set() or link.silent):
                sink.shutdown(socket.SHUT_WR)


class _Link:
    """One connection through the wire: the client's end and the server's."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self.silent = False
        self._ends = (near, far)

    def end(self, *, reset: bool = False) -> None:
        for end in self._ends:
            with suppress(OSError):
                if reset:
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                    end.shutdown(socket.SHUT_RD)  # wakes who reads it, and says nothing to the peer
                else:
                    end.shutdown(socket.SHUT_RDWR)
            end.close()
