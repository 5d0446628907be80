"""The worker's event loop: one batch of events, a full process, the memory limit."""

from __future__ import annotations

import errno
import selectors
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from gunicorn.config import Config

from api.wire import buffering_worker
from api.wire.buffering_worker import BufferingWorker
from api.wire.connection import Connection

BODY = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
#: More than the buffers of a socket pair take.
LARGE = b"x" * 2_000_000


class Worker(BufferingWorker):
    """A worker without a process and threads; requests are listed instead of handled."""

    def __init__(self) -> None:
        self.cfg = Config()
        self.alive = True
        self.nr_conns = 0
        self.worker_connections = 4
        self.poller = selectors.DefaultSelector()
        self.requests: list[bytes] = []
        self.clients: list[socket.socket] = []
        self.init_parking()

    def enqueue_req(self, connection: Connection) -> None:
        self.requests.append(bytes(connection.frame.received))
        connection.hand_over(self.cfg)

    def connect(self) -> tuple[Connection, socket.socket]:
        """Accept a new client."""
        before = set(self._parked)
        ours, client = socket.socketpair()
        self.clients.append(client)
        self.accept(Listener(ours))
        return next(one for one in self._parked if one not in before), client

    def answer(self, connection: Connection, response: bytes, *, stays_open: bool) -> None:
        """Answer this connection's request as a thread does."""
        done: Future[bool] = Future()
        assert connection.parser is not None
        next(connection.parser)
        connection.sock.sendall(response)
        done.set_result(stays_open)
        self.finish_request(connection, done)

    def turn(self, *, last: Connection | None = None) -> None:
        """Call the reactions of one batch of events; those of `last` come last."""
        batch = self.poller.select(0)
        for key, _ in sorted(
            batch, key=lambda event: event[0].fileobj is getattr(last, "sock", None)
        ):
            key.data(key.fileobj)

    @property
    def held(self) -> int:
        return self._held


class Listener(socket.socket):
    """Hands out one connection, or raises this error."""

    def __init__(self, accepted: socket.socket | OSError) -> None:
        super().__init__()
        self.close()
        self._accepted = accepted

    def accept(self) -> tuple[socket.socket, object]:
        if isinstance(self._accepted, OSError):
            raise self._accepted
        return self._accepted, ("127.0.0.1", 1)

    def getsockname(self) -> object:
        return ("127.0.0.1", 2)


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker()
    yield worker
    worker.murder_keepalived(force=True)
    for client in worker.clients:
        client.close()
    worker.poller.close()


def has_closed(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(100) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def test_event_to_receive_after_the_connection_was_dropped_is_ignored(worker):
    first, sender = worker.connect()
    sender.sendall(b"GET /")
    batch = worker.poller.select(0)
    worker.connect(), worker.connect(), worker.connect()
    assert worker.nr_conns == 3  # the first has made room
    for key, _ in batch:
        key.data(key.fileobj)
    assert worker.nr_conns == 3
    assert first not in worker._parked
    assert worker.held == 0


def test_event_to_send_after_the_connection_was_dropped_is_ignored(worker):
    first, client = worker.connect()
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    worker.turn()
    worker.answer(first, LARGE, stays_open=True)
    client.recv(len(LARGE))
    batch = worker.poller.select(0)
    assert len(batch) == 1
    worker.connect(), worker.connect(), worker.connect()
    for key, _ in batch:
        key.data(key.fileobj)
    assert (worker.nr_conns, worker.held) == (3, 0)


def test_rest_of_a_refused_request_in_the_same_batch_is_not_handled(worker, monkeypatch):
    monkeypatch.setattr(buffering_worker, "MAX_HELD_BYTES", 200)
    first, one = worker.connect()
    _, other = worker.connect()
    one.sendall(BODY + b"x" * 50)
    worker.turn()
    other.sendall(b"GET /" + b"a" * 150)
    one.sendall(b"x" * 250)
    worker.turn(last=first)
    assert one.recv(12) == b"HTTP/1.1 503"
    assert worker.requests == []
    worker.turn()
    assert worker.requests == []


def test_connection_that_is_dropped_twice_is_counted_once(worker):
    connection, _ = worker.connect()
    worker._drop(connection)
    worker._drop(connection)
    assert worker.nr_conns == 0


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ECONNABORTED])
def test_client_that_another_process_took_costs_no_connection(worker, error):
    clients = [worker.connect()[1] for _ in range(3)]
    worker.accept(Listener(OSError(error, "none")))
    assert worker.nr_conns == 3
    assert not any(has_closed(client) for client in clients)


def test_process_without_descriptors_drops_its_oldest_connection(worker):
    oldest, newest = (worker.connect()[1] for _ in range(2))
    worker.accept(Listener(OSError(errno.EMFILE, "none")))
    assert has_closed(oldest)
    assert not has_closed(newest)


def test_unsent_responses_are_freed_beyond_the_limit(worker, monkeypatch):
    monkeypatch.setattr(buffering_worker, "MAX_HELD_BYTES", 3_000_000)
    connections = [worker.connect() for _ in range(3)]
    for _, client in connections:
        client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    worker.turn()
    for connection, _ in connections:
        worker.answer(connection, LARGE, stays_open=False)
        assert worker.held <= 3_000_000
    assert worker.nr_conns == 1  # the last one is the one whose response is kept
    assert list(worker._parked) == [connections[-1][0]]


def test_requests_behind_an_unsent_response_are_counted(worker):
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    connection, client = worker.connect()
    client.sendall(request * 10)
    worker.turn()
    worker.answer(connection, LARGE, stays_open=True)
    assert worker.held == len(connection.sock.unsent) + 9 * len(request)
    while connection.sock.unsent:
        client.recv(len(LARGE))
        worker.turn()
    assert worker.requests[1:] == [request * 9]
    assert worker.held == 9 * len(request)
    worker.answer(connection, b"", stays_open=False)


def test_request_is_freed_while_its_response_is_sent(worker):
    connection, client = worker.connect()
    client.sendall(BODY + b"x" * 100)
    worker.turn()
    worker.answer(connection, LARGE, stays_open=False)
    assert connection.parser is None


def test_small_response_is_sent_by_one_system_call(worker):
    connection, client = worker.connect()
    client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    worker.turn()
    connection.sock.sendall(b"head")
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(100)
    connection.sock.sendall(b"body")
    connection.sock.flush()
    assert client.recv(100) == b"headbody"
    worker.answer(connection, b"", stays_open=False)


def test_cut_off_response_is_sent_as_far_as_it_goes(worker):
    connection, client = worker.connect()
    connection.sock.sendall(b"head")
    connection.sock.shutdown(socket.SHUT_WR)
    assert client.recv(100) == b"head"


def test_worker_reports_that_it_is_alive_once_a_second(worker, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    reports: list[float] = []
    worker.tmp = SimpleNamespace(notify=lambda: reports.append(now[0]))
    for moment in (100.0, 100.1, 100.9, 101.0, 101.5, 103.0):
        now[0] = moment
        worker.notify()
    assert reports == [100.0, 101.0, 103.0]
