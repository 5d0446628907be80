"""A gunicorn worker that passes a request to a thread only after receiving all of it.

gunicorn's own threaded worker reads requests in its threads, without a deadline: 64 clients that
send half a request take all 64 threads. Here the event loop receives, as a reverse proxy with
request buffering does, and each phase of a connection has one deadline for all of it. A thread
never waits for a client, except for one that reads an event stream.
"""

from __future__ import annotations

import errno
import math
import selectors
import socket
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from http import HTTPStatus

from gunicorn.workers.gthread import STOP_KEEPALIVE_LINGER, ThreadWorker

from api.requests import MAX_BODY_BYTES
from api.wire.connection import ClientSocket, Connection
from api.wire.framing import MAX_HEAD_BYTES, Stage
from leadhand.errors import RETRY_AFTER_S, Malformed, of_status
from leadhand.models.problems import MEDIA_TYPE, Problem

#: How long a client may take for the whole head of a request.
HEAD_S = 10.0
#: How long it may take for the whole body after that.
BODY_S = 20.0
#: How long it may take to accept a whole response that is not a stream.
RESPONSE_S = 30.0
#: How long a connection is read after the last response, so that the client can receive that.
LINGER_S = 2.0
#: How many bytes of half-received requests and half-sent responses one process keeps.
MAX_HELD_BYTES = 64 * 1024 * 1024
#: Threads that answer these paths and no other, so that a busy API is not restarted as a dead one.
RESERVED_THREADS = {b"/healthz": 1, b"/readyz": 2}

_READ_BYTES = 64 * 1024
#: Interval at which deadlines are checked.
_LOOK_S = 0.25
#: How often the worker reports that it is alive; gunicorn ends one that is silent for a minute.
_NOTIFY_S = 1.0
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)
_NOTHING_TO_ACCEPT = (errno.EAGAIN, errno.ECONNABORTED, errno.EWOULDBLOCK)
#: Characters of what the parser says, which quotes the request.
_WHY_LENGTH = 200


class BufferingWorker(ThreadWorker):  # type: ignore[misc]
    """Parks connections in the event loop; only whole requests take a thread.

    All methods but `handle` and those that it calls run in the main thread. A connection is
    parked (in the poller, with a deadline) or in a thread, never both.
    """

    tpool: ThreadPoolExecutor

    def init_process(self) -> None:
        """Create this worker process's state and thread pools, then run it; gunicorn calls this."""
        self.init_parking()
        self._reserved = {
            path: ThreadPoolExecutor(max_workers=n) for path, n in RESERVED_THREADS.items()
        }
        super().init_process()

    def init_parking(self) -> None:
        """Create the empty table of connections that wait for more bytes, and its timers."""
        #: In the order in which they were parked, with a mark that is new each time.
        self._parked: dict[Connection, object] = {}
        #: Those whose request is in a thread.
        self._handled: set[Connection] = set()
        #: When the streams of a stopping worker are cut off.
        self._streams_end = math.inf
        self._held = 0
        self._next_look = 0.0
        self._next_notify = 0.0

    # From a new connection to a whole request.

    def accept(self, listener: socket.socket) -> None:
        """Accept a connection and let it wait for its request without a thread.

        A worker with too many connections closes the oldest.
        """
        try:
            sock, client = listener.accept()
        except OSError as error:
            if error.errno in _NO_DESCRIPTORS:
                self._drop_oldest()
            elif error.errno not in _NOTHING_TO_ACCEPT:
                raise
            return
        if self.nr_conns >= self.worker_connections - 1:
            self._drop_oldest()
        self.nr_conns += 1
        connection = Connection(sock, client, listener.getsockname())
        self._park(connection, selectors.EVENT_READ, self._receive, HEAD_S)

    def _receive(self, connection: Connection) -> None:
        received = _read(connection)
        if received == b"":
            self._drop(connection)
        elif received is not None:
            self._collect(connection, received)

    def _collect(self, connection: Connection, received: bytes) -> None:
        """Add bytes to a parked connection's request, and act on its new stage."""
        before, began = connection.frame.stage, bool(connection.frame.received)
        stage = connection.frame.add(received)
        self._count(connection)
        match stage:
            case Stage.HEAD if not began:
                connection.deadline = time.monotonic() + HEAD_S
            case Stage.HEAD:
                pass  # the deadline is for the whole head
            case Stage.BODY if before is Stage.HEAD:
                self._begin_body(connection)
            case Stage.BODY:
                pass
            case Stage.HEAD_TOO_LONG:
                self._refuse(connection, HEAD_TOO_LONG)
            case Stage.BODY_TOO_LONG:
                self._refuse(connection, BODY_TOO_LONG)
            case _:
                self._unpark(connection)
                self.enqueue_req(connection)
        self._free_memory()

    def _begin_body(self, connection: Connection) -> None:
        connection.deadline = time.monotonic() + BODY_S
        if connection.frame.expects_continue:
            try:
                connection.sock.sendall(_CONTINUE)
                connection.sock.flush()
            except OSError:
                self._drop(connection)

    def enqueue_req(self, connection: Connection) -> None:
        """Pass a complete request to a thread; gunicorn calls this."""
        pool = self._reserved.get(connection.frame.target, self.tpool)
        connection.hand_over(self.cfg)
        self._handled.add(connection)
        done: Future[bool] = pool.submit(self.handle, connection)
        done.add_done_callback(partial(self.method_queue.defer, self.finish_request, connection))

    def handle(self, connection: Connection) -> bool:
        """Answer a request, in a thread; returns whether the connection can stay open."""
        answered = bool(super().handle(connection))
        try:
            connection.sock.flush()
        except OSError:
            return False
        return answered

    def handle_error(self, req: object, client: ClientSocket, addr: object, exc: Exception) -> None:
        """Respond to an exception with problem+json instead of gunicorn's HTML.

        Gunicorn calls this in the thread.
        """
        page = _Page()
        super().handle_error(req, page, addr, exc)
        client.sendall(unparsable(page.status, str(exc)))

    # From a response to the next request, or to the end.

    def finish_request(self, connection: Connection, done: Future[bool]) -> None:
        """Close the connection after a response, or wait for its next request."""
        self._handled.discard(connection)
        answered = not done.cancelled() and done.exception() is None and bool(done.result())
        # What follows a request that was refused halfway is the rest of its body.
        connection.stays_open = answered and connection.frame.stage is Stage.WHOLE
        connection.take_back()
        self._count(connection)
        if connection.sock.unsent:
            self._park(connection, selectors.EVENT_WRITE, self._send, RESPONSE_S)
        else:
            self._after_response(connection)
        self._free_memory()

    def _keepalive_after(self, connection: Connection, keepalive: bool) -> bool:
        """Read the rest of the body; gunicorn calls it in the thread, after the response."""
        if connection.frame.stage is not Stage.WHOLE:
            return False  # the rest was not received, and may be malformed
        return bool(super()._keepalive_after(connection, keepalive))

    def _send(self, connection: Connection) -> None:
        try:
            connection.sock.flush()
        except OSError:
            self._drop(connection)
            return
        self._count(connection)
        if not connection.sock.unsent:
            self._unpark(connection)
            self._after_response(connection)

    def _after_response(self, connection: Connection) -> None:
        if not connection.stays_open:
            self._linger(connection)
            return
        early = connection.next_request()
        self._count(connection)
        idle_s = self.cfg.keepalive if self.alive else STOP_KEEPALIVE_LINGER
        self._park(connection, selectors.EVENT_READ, self._receive, idle_s)
        if early:
            self._collect(connection, early)

    def _linger(self, connection: Connection) -> None:
        """Close in two steps: to close with unread bytes would cut off the last response."""
        try:
            connection.sock.shutdown(socket.SHUT_WR)
        except OSError:
            self._drop(connection)
            return
        self._park(connection, selectors.EVENT_READ, self._drain, LINGER_S)

    def _drain(self, connection: Connection) -> None:
        if _read(connection) == b"":
            self._drop(connection)

    # Parking, deadlines and limits.

    def _park(
        self,
        connection: Connection,
        event: int,
        react: Callable[[Connection], None],
        seconds: float,
    ) -> None:
        connection.deadline = time.monotonic() + seconds
        mark = self._parked[connection] = object()
        self.poller.register(connection.sock, event, partial(self._react, connection, mark, react))

    def _react(
        self, connection: Connection, mark: object, react: Callable[[Connection], None], _: object
    ) -> None:
        """Handle an event, unless an earlier one of the same batch has ended this parking."""
        if self._parked.get(connection) is mark:
            react(connection)

    def _unpark(self, connection: Connection) -> None:
        del self._parked[connection]
        self.poller.unregister(connection.sock)

    def _count(self, connection: Connection) -> None:
        """Update the memory that is held, after this connection's has changed."""
        held = connection.buffered
        self._held += held - connection.held
        connection.held = held

    def _free_memory(self) -> None:
        while self._held > MAX_HELD_BYTES and self._refuse_oldest():
            pass

    def _drop(self, connection: Connection) -> None:
        """Close a connection; does nothing if it is closed."""
        if not connection.is_open:
            return
        if connection in self._parked:
            self._unpark(connection)
        connection.close()
        self._count(connection)
        self.nr_conns -= 1

    def _drop_oldest(self) -> None:
        oldest = next(iter(self._parked), None)
        if oldest is not None:
            self._drop(oldest)

    def _refuse(self, connection: Connection, response: bytes) -> None:
        """Answer a parked connection without the application, and close it."""
        self._unpark(connection)
        connection.frame.received.clear()
        try:
            connection.sock.sendall(response)
            connection.sock.flush()
        except OSError:
            self._drop(connection)
            return
        connection.sock.unsent.clear()
        self._count(connection)
        self._linger(connection)

    def _refuse_oldest(self) -> bool:
        """Free the memory of the connection that has held some for longest; False without one."""
        oldest = next((one for one in self._parked if one.held), None)
        if oldest is None:
            return False
        if oldest.sock.unsent:
            self._drop(oldest)
        else:
            self._refuse(oldest, BUSY)
        return True

    def notify(self) -> None:
        """Report to gunicorn that this worker is alive, every _NOTIFY_S seconds."""
        now = time.monotonic()
        if now >= self._next_notify:
            self._next_notify = now + _NOTIFY_S
            super().notify()

    def murder_pending(self) -> None:
        """Refuse and close the connections whose deadline has passed; called regularly."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_S
        if now >= self._streams_end:
            for connection in self._handled:
                connection.sock.end_stream()
        for connection in [one for one in self._parked if one.deadline <= now]:
            if connection.frame.received:
                in_head = connection.frame.stage is Stage.HEAD
                self._refuse(connection, HEAD_LATE if in_head else BODY_LATE)
            else:
                self._drop(connection)

    def murder_keepalived(self, force: bool = False) -> None:
        """With `force`, close all waiting connections, since the worker ends; else do nothing."""
        for connection in list(self._parked) if force else ():
            self._drop(connection)

    def _cap_keepalive(self, deadline: float) -> None:
        """Wait for no new request, and for no stream, longer than this.

        gunicorn calls it when the worker stops. A client that does not read the end of its stream
        in this time misses nothing: it connects again with the last id that it has read.
        """
        self._streams_end = deadline
        for connection in self._parked:
            if connection.frame.stage is Stage.HEAD:
                connection.deadline = min(connection.deadline, deadline)


class _Page:
    """Takes the place of a client's socket, and keeps the status of the response."""

    status = 500

    def sendall(self, response: bytes) -> None:
        self.status = int(response.split(maxsplit=2)[1])

    def gettimeout(self) -> float:
        return 0.0


def _read(connection: Connection) -> bytes | None:
    """Receive some bytes; none if the client has closed, None if there is nothing to read."""
    try:
        return connection.sock.recv(_READ_BYTES)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def _response(status: int, detail: str, hint: str, *headers: str) -> bytes:
    return _bytes_of(of_status(status, detail, hint=hint).problem, *headers)


def _bytes_of(problem: Problem, *headers: str) -> bytes:
    body = problem.model_dump_json(exclude_none=True)
    lines = [
        f"HTTP/1.1 {problem.status} {HTTPStatus(problem.status).phrase}",
        f"Content-Type: {MEDIA_TYPE}",
        f"Content-Length: {len(body.encode())}",
        "Connection: close",
        *headers,
        "",
        body,
    ]
    return "\r\n".join(lines).encode()


def unparsable(status: int, why: str) -> bytes:
    """Returns the response to a request that gunicorn cannot parse, or that broke the server."""
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return _bytes_of(of_status(status, "the request cannot be served").problem)
    detail = f"the request is not valid HTTP/1.1: {why[:_WHY_LENGTH]}"
    if status == HTTPStatus.BAD_REQUEST:
        return _bytes_of(Malformed(detail).problem)
    return _bytes_of(of_status(status, detail).problem)


HEAD_LATE = _response(
    408, "the head of the request was not complete in time", "send the request without pauses"
)
BODY_LATE = _response(
    408, "the body of the request was not complete in time", "send the request without pauses"
)
HEAD_TOO_LONG = _response(
    431, f"the head of the request is longer than {MAX_HEAD_BYTES} bytes", "send fewer headers"
)
BODY_TOO_LONG = _response(
    413, f"the chunks of the body hold more than {MAX_BODY_BYTES} bytes", "send larger chunks"
)
BUSY = _response(
    503,
    "too many requests are half received",
    "try again soon",
    f"Retry-After: {RETRY_AFTER_S}",
)
