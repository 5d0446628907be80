"""A client's connection, as the worker's event loop and gunicorn's threads see it."""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence
from contextlib import suppress

from gunicorn.config import Config
from gunicorn.http.parser import RequestParser

from api.requests import MAX_BODY_BYTES
from api.wire.framing import Frame

#: More than the longest body that is accepted: gunicorn reads ahead in steps of 1 KiB, and the
#: application has to receive one byte too many to refuse the body for its length.
_COLLECTED = MAX_BODY_BYTES + 4096
#: A response is sent in pieces of this size, so that a small one takes a single system call.
_PIECE_BYTES = 64 * 1024


class ClientSocket:
    """A non-blocking socket that keeps in memory what the client does not accept at once.

    A response is in memory before it is sent, so keeping the rest costs no more than a thread
    would that waits. A stream sets a timeout instead (`settimeout`): its thread waits for the
    client, that much for each event, because a stream has no end.
    """

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._timeout_s: float | None = None
        self.unsent = bytearray()

    def fileno(self) -> int:
        """Return the file descriptor of the socket."""
        return self._sock.fileno()

    def recv(self, size: int) -> bytes:
        """Return at most `size` received bytes; raises BlockingIOError if there are none."""
        return self._sock.recv(size)

    def has_left(self) -> bool:
        """Whether the client has closed the connection."""
        try:
            return self._sock.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send(self, text: bytes) -> int:
        """Discard gunicorn's `100 Continue`, since the event loop has sent it already."""
        return len(text)

    def sendall(self, text: bytes) -> None:
        """Buffer bytes until a piece is full; with a timeout set, send now. Raises OSError."""
        if self._timeout_s is not None:
            self._send_in_time(text, self._timeout_s)
            return
        self.unsent += text
        if len(self.unsent) >= _PIECE_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send as much of the buffer as the client accepts now. Raises OSError."""
        while self.unsent:
            try:
                del self.unsent[: self._sock.send(self.unsent)]
            except BlockingIOError:
                return

    def settimeout(self, seconds: float | None) -> None:
        """Make `sendall` send at once within this time; with None, buffer until a flush."""
        self._timeout_s = seconds

    def end_stream(self) -> None:
        """Shut a stream's connection down, so that its thread waits for the client no longer."""
        if self._timeout_s is not None:
            with suppress(OSError):  # the client has closed it
                self._sock.shutdown(socket.SHUT_RDWR)

    def gettimeout(self) -> float:
        """Return 0, so that gunicorn does not wait for this socket."""
        return 0.0

    def is_closed(self) -> bool:
        """Whether the client has closed the connection; does not block."""
        try:
            return self._sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            return False
        except OSError:
            return True

    def setblocking(self, *_: object) -> None:
        """Do nothing: this socket never blocks, whatever gunicorn asks for."""

    def shutdown(self, how: int) -> None:
        """Send the buffer, then shut the connection down."""
        self.flush()
        self._sock.shutdown(how)

    def close(self) -> None:
        """Discard the buffer and close the socket."""
        self.unsent.clear()
        self._sock.close()

    def _send_in_time(self, text: bytes, seconds: float) -> None:
        """Wait for the client at most this long in total. Raises OSError."""
        self._sock.settimeout(seconds)
        try:
            self._sock.sendall(bytes(self.unsent) + text)
        except TimeoutError:
            raise BrokenPipeError(errno.EPIPE, "the client reads too slowly") from None
        self._sock.setblocking(False)
        self.unsent.clear()


class Connection:
    """One client's connection. The attributes without a comment are those that gunicorn expects."""

    initialized = True
    data_ready = True
    is_http2 = False

    def __init__(self, sock: socket.socket, client: object, server: object) -> None:
        self.sock = ClientSocket(sock)
        self.client = client
        self.server = server
        self.parser: RequestParser | None = None
        #: The request that is being received.
        self.frame = Frame(max_body=_COLLECTED)
        #: When the event loop gives it up, by the monotonic clock.
        self.deadline = 0.0
        #: The bytes of the next requests, which arrived with the one that is being handled.
        self.early = b""
        #: For how many bytes it is counted; those of a request still while a thread handles it.
        self.held = 0
        self.is_open = True
        #: Whether another request may follow the one that is being handled.
        self.stays_open = False

    def init(self) -> None:
        """Do nothing: `hand_over` makes the parser that gunicorn would make here."""

    def hand_over(self, cfg: Config) -> None:
        """Create a parser of the received request, from which a thread reads and answers it."""
        received: Sequence[bytes] = [bytes(self.frame.received)]
        self.frame.received.clear()
        self.sock.settimeout(None)
        self.parser = RequestParser(cfg, received, self.client)

    def take_back(self) -> None:
        """Free the memory of an answered request; keeps the bytes after it."""
        if self.stays_open and self.parser is not None:
            self.early = self.parser.unreader.take_buffered()
        self.parser = None

    def next_request(self) -> bytes:
        """Begin the next request; returns its bytes that have already arrived."""
        self.frame = Frame(max_body=_COLLECTED)
        early, self.early = self.early, b""
        return early

    @property
    def buffered(self) -> int:
        """Return how many bytes the connection holds in memory while it waits."""
        return len(self.frame.received) + len(self.sock.unsent) + len(self.early)

    def close(self) -> None:
        """Close the socket and free the memory."""
        self.is_open = False
        self.frame.received.clear()
        self.early = b""
        self.parser = None
        self.sock.close()
