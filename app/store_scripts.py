"""Calls transitions over connections that are kept: one write and one read a call, and no more."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import TypeVar, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionInterface
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry

from app.store_library import PREFIX, VERBS, Reader, Verb, library, script, text_of

T = TypeVar("T")

#: A connection that was idle for longer may be half-open: to learn that costs a time-out, a new
#: one next to nothing.
TRUSTED_S = 10.0
#: The parts of a command before its keys.
_HEAD = 3
#: So many libraries stay loaded: one for each version of this program that is at work at once.
KEPT = 4
#: What a server says that takes no functions (Redis 6), or none from us (ACL).
_TAKES_NONE = re.compile(r"unknown command|NOPERM|no permissions", re.IGNORECASE)


class Scripts:
    """The transitions of a store by name: functions where the server takes them, else scripts.

    One is called once or more for each step, and redis-py's own way to do that takes longer
    than the script itself. Tries, time-outs and errors are those of the client.
    """

    def __init__(self, redis: Redis, read: Reader = text_of) -> None:
        self._pool = redis.connection_pool
        self._retry = redis.get_retry() or Retry(NoBackoff(), 0)
        self._read = read
        self._way: _Functions | _Texts = _Functions(read)
        #: Those that nobody uses now, with the process that opened them and the time since when:
        #: none is used after a fork.
        self._idle: list[tuple[int, float, ConnectionInterface]] = []

    def call(self, name: Verb, values: Sequence[str]) -> bytes:
        """What the transition answers to three keys and its arguments."""
        count, rest = _rest(values)
        return self._on_a_connection(lambda c: self._answer(c, name, count, rest))

    def call_all(self, name: Verb, calls: Sequence[Sequence[str]]) -> list[bytes]:
        """What the same transition answers to each of several, sent at once.

        Each is one of its own: where an error is raised, any of them may have been made.
        """
        rests = map(_rest, calls)
        commands = [b"".join([count, self._way.heads[name], rest]) for count, rest in rests]
        return self._on_a_connection(lambda c: _all_said(c, commands))

    def fields(self, key: str, names: Sequence[str]) -> list[bytes | None]:
        """Some fields of a hash, as HMGET gives them."""
        command = _command("HMGET", key, *names)
        found: object = self._on_a_connection(lambda c: _said(c, command))
        return cast("list[bytes | None]", found)

    def _on_a_connection(self, ask: Callable[[ConnectionInterface], T]) -> T:
        connection = self._taken()
        try:
            return self._retry.call_with_retry(
                lambda: ask(connection), lambda _error: _cut(connection)
            )
        except BaseException:
            _cut(connection)  # an answer that nobody read must not be the next one's
            raise
        finally:
            self._idle.append((os.getpid(), time.monotonic(), connection))

    def _answer(
        self, connection: ConnectionInterface, name: Verb, count: bytes, rest: bytes
    ) -> bytes:
        answer = self._way.answer(connection, name, count, rest)
        if answer is None:
            self._way = _Texts(self._read)
            answer = self._way.answer(connection, name, count, rest)
        assert answer is not None
        return answer

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
    (answer,) = _all_said(connection, [command])
    return answer


def _all_said(connection: ConnectionInterface, commands: Sequence[bytes]) -> list[bytes]:
    connection.send_packed_command([b"".join(commands)])  # type: ignore[no-untyped-call]
    return [connection.read_response(disable_decoding=True) for _ in commands]


class _Functions:
    """A library that the server keeps (Redis 7): its functions are made once."""

    def __init__(self, read: Reader) -> None:
        self._library = library(read)
        self.heads = {verb: _head("FCALL", self._library.function(verb)) for verb in VERBS}

    def answer(
        self, connection: ConnectionInterface, name: Verb, count: bytes, rest: bytes
    ) -> bytes | None:
        """What the function answers; None where the server takes no functions from us."""
        command = b"".join([count, self.heads[name], rest])
        try:
            try:
                return _said(connection, command)
            except ResponseError as error:
                if "Function not found" not in str(error):
                    raise
            self._load(connection)
            return _said(connection, command)
        except ResponseError as error:
            if _TAKES_NONE.search(str(error)):
                return None
            raise

    def _load(self, connection: ConnectionInterface) -> None:
        since = time.time_ns() // 1_000_000
        try:
            _said(connection, _command("FUNCTION", "LOAD", self._library.text(since)))
        except ResponseError as error:
            if "already exists" not in str(error):  # somebody else was quicker
                raise
        with suppress(ResponseError):  # whoever may not list them leaves them
            _forget_old(connection)


def _forget_old(connection: ConnectionInterface) -> None:
    """What earlier versions of this program left: whoever still calls one loads it again."""
    listed = _said(connection, _command("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*"))
    names = re.findall(rf"{PREFIX}(\d+)_([0-9a-f]{{16}})'", str(listed))
    for since, mark in sorted(names, key=lambda name: -int(name[0]))[KEPT:]:
        with suppress(ResponseError):  # somebody else forgot it
            _said(connection, _command("FUNCTION", "DELETE", f"{PREFIX}{since}_{mark}"))


class _Texts:
    """A script for each, known to the server by its hash."""

    def __init__(self, read: Reader) -> None:
        self._texts = {verb: script(verb, read) for verb in VERBS}
        self.heads = {
            verb: _head("EVALSHA", sha1(text.encode()).hexdigest())  # noqa: S324 - as Redis names it
            for verb, text in self._texts.items()
        }

    def answer(
        self, connection: ConnectionInterface, name: Verb, count: bytes, rest: bytes
    ) -> bytes:
        command = b"".join([count, self.heads[name], rest])
        try:
            return _said(connection, command)
        except NoScriptError:
            _said(connection, _command("SCRIPT", "LOAD", self._texts[name]))
            return _said(connection, command)


def _rest(values: Sequence[str]) -> tuple[bytes, bytes]:
    """What comes before a call's head, and what comes after it."""
    return b"*%d\r\n" % (_HEAD + len(values)), b"".join(map(_part, values))


def _head(command: str, name: str) -> bytes:
    """A call as it goes over the wire, up to its keys: there are three of them."""
    return b"".join(map(_part, (command, name, "3")))


def _command(*parts: str) -> bytes:
    return b"".join([b"*%d\r\n" % len(parts), *map(_part, parts)])


def _part(value: str) -> bytes:
    raw = value.encode()
    return b"$%d\r\n%b\r\n" % (len(raw), raw)
