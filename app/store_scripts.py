"""Calls scripts over connections that are kept: one write and one read a call, and no more."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from hashlib import sha1

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionInterface
from redis.exceptions import NoScriptError
from redis.retry import Retry

#: A connection that was idle for longer may be half-open: to learn that costs a time-out, a new
#: one next to nothing.
TRUSTED_S = 10.0
#: The parts of a command before its keys.
_HEAD = 3


class Scripts:
    """The scripts of a store by name, each known to the server by its hash.

    A script is called once or more for each step, and redis-py's own way to do that takes longer
    than the script itself. Tries, time-outs and errors are those of the client.
    """

    def __init__(self, redis: Redis, texts: Mapping[str, str]) -> None:
        self._pool = redis.connection_pool
        self._retry = redis.get_retry() or Retry(NoBackoff(), 0)
        self._texts = texts
        self._heads = {name: _head(text) for name, text in texts.items()}
        #: Those that nobody uses now, with the process that opened them and the time since when:
        #: none is used after a fork.
        self._idle: list[tuple[int, float, ConnectionInterface]] = []

    def call(self, name: str, values: Sequence[str]) -> bytes:
        """What the script answers to three keys and its arguments."""
        count = b"*%d\r\n" % (_HEAD + len(values))
        command = b"".join([count, self._heads[name], *map(_part, values)])
        connection = self._taken()
        try:
            return self._retry.call_with_retry(
                lambda: self._answer(connection, name, command),
                lambda _error: _cut(connection),
            )
        except BaseException:
            _cut(connection)  # an answer that nobody read must not be the next one's
            raise
        finally:
            self._idle.append((os.getpid(), time.monotonic(), connection))

    def _answer(self, connection: ConnectionInterface, name: str, command: bytes) -> bytes:
        try:
            return _said(connection, command)
        except NoScriptError:
            _said(
                connection, b"*3\r\n" + b"".join(map(_part, ("SCRIPT", "LOAD", self._texts[name])))
            )
            return _said(connection, command)

    def _taken(self) -> ConnectionInterface:
        while self._idle:
            try:
                pid, since, connection = self._idle.pop()
            except IndexError:  # another thread took the last one
                break
            if pid == os.getpid():
                if time.monotonic() - since > TRUSTED_S:
                    _cut(connection)  # it connects anew where it is used
                return connection
        return self._pool.make_connection()


def _cut(connection: ConnectionInterface) -> None:
    connection.disconnect()  # type: ignore[no-untyped-call]


def _said(connection: ConnectionInterface, command: bytes) -> bytes:
    connection.send_packed_command([command])  # type: ignore[no-untyped-call]
    answer: bytes = connection.read_response(disable_decoding=True)
    return answer


def _head(text: str) -> bytes:
    """EVALSHA as it goes over the wire, up to its keys: there are three of them."""
    name = sha1(text.encode()).hexdigest()  # noqa: S324 - what Redis calls a script
    return b"".join(map(_part, ("EVALSHA", name, "3")))


def _part(value: str) -> bytes:
    raw = value.encode()
    return b"$%d\r\n%b\r\n" % (len(raw), raw)
