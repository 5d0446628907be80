"""Calls transitions over pooled connections, with one write and one read per call."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha1
from typing import NamedTuple, TypeVar, cast

from pydantic import JsonValue
from redis import Redis
from redis.backoff import NoBackoff
from redis.connection import ConnectionInterface
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry

from app.store.script_library import PREFIX, VERBS, Reader, Verb, library, script, text_of

T = TypeVar("T")
#: Sends commands over one connection, and returns a text or None for each.
Ask = Callable[[Sequence[Sequence[str]]], "list[str | None]"]
#: A connection that was idle for longer may be half-open. It is reconnected, which is cheaper than
#: a time-out.
TRUSTED_S = 10.0
#: The parts of a command before its keys.
_HEAD = 3
#: Number of libraries that stay loaded, one for each version of Leadhand.
KEPT = 4
#: Errors that mean Redis functions are unavailable: a server older than 7, or a forbidding ACL.
_NO_FUNCTIONS = re.compile(r"unknown command|NOPERM|no permissions", re.IGNORECASE)
#: Errors that mean that the library has to be loaded, or that there is none.
_NOT_LOADED = re.compile(f"Function not found|{_NO_FUNCTIONS.pattern}", re.IGNORECASE)


class Scripts:
    """Calls a store's transitions: as Redis functions if the server allows them, else as scripts.

    Each step needs at least one call, and redis-py's own call takes longer than the function
    itself. Retries, time-outs and errors are those of the client.
    """

    def __init__(
        self, redis: Redis, read: Reader = text_of, verify: Callable[[Ask], None] | None = None
    ) -> None:
        self._pool = redis.connection_pool
        self._verify = verify
        self._retry = redis.get_retry() or Retry(NoBackoff(), 0)
        self._read = read
        self._caller: _FunctionCalls | _ScriptCalls = _FunctionCalls(read)
        #: Idle connections: the opening process (none is used after a fork), the time since which
        #: it is idle, and the connection.
        self._idle: list[tuple[int, float, ConnectionInterface]] = []

    def call(self, name: Verb, values: Sequence[str]) -> bytes:
        """Run the Lua function of a verb with its keys and arguments; returns the reply."""
        count, rest = _rest(values)
        return self._with_connection(lambda c: self._call(c, name, count, rest))

    def call_all(self, name: Verb, calls: Sequence[Sequence[str]]) -> list[bytes]:
        """Run a Lua function once per call in one round trip; returns the replies.

        Each call is atomic by itself: after an error, any of them may have run.
        """
        rests = map(_rest, calls)
        commands = [b"".join([count, self._caller.heads[name], rest]) for count, rest in rests]
        try:
            return self._with_connection(lambda c: _send_all(c, commands))
        except ResponseError as error:
            if not (isinstance(error, NoScriptError) or _NOT_LOADED.search(str(error))):
                raise
        return [self.call(name, values) for values in calls]  # the first one loads it

    def fields(self, key: str, names: Sequence[str]) -> list[bytes | None]:
        """Read fields of a hash, like HMGET."""
        command = _command("HMGET", key, *names)
        found: object = self._with_connection(lambda c: _send(c, command))
        return cast("list[bytes | None]", found)

    def ask(self, commands: Sequence[Sequence[str]]) -> list[object]:
        """Send read commands in one round trip; returns their replies, undecoded."""
        packed = [_command(*command) for command in commands]
        return self._with_connection(lambda c: [*_send_all(c, packed)])

    def close(self) -> None:
        """Close the idle connections; later calls open new ones."""
        while self._idle:
            _disconnect(self._idle.pop()[2])

    def _with_connection(self, ask: Callable[[ConnectionInterface], T]) -> T:
        connection = self._take_connection()
        try:
            return self._retry.call_with_retry(
                lambda: ask(connection), lambda _error: _disconnect(connection)
            )
        except BaseException:
            _disconnect(connection)  # an unread reply must not be taken for that of the next call
            raise
        finally:
            self._idle.append((os.getpid(), time.monotonic(), connection))

    def _call(
        self, connection: ConnectionInterface, name: Verb, count: bytes, rest: bytes
    ) -> bytes:
        reply = self._caller.reply(connection, name, count, rest)
        if reply is None:
            self._caller = _ScriptCalls(self._read)
            reply = self._caller.reply(connection, name, count, rest)
        assert reply is not None
        return reply

    def _take_connection(self) -> ConnectionInterface:
        while self._idle:
            try:
                pid, since, connection = self._idle.pop()
            except IndexError:  # another thread took the last one
                break
            if pid == os.getpid():
                if time.monotonic() - since > TRUSTED_S:
                    _disconnect(connection)  # it reconnects when it is used
                return connection
        connection = self._pool.make_connection()
        connection.register_connect_callback(self._check)  # type: ignore[no-untyped-call]
        return connection

    def _check(self, connection: ConnectionInterface) -> None:
        """Verify the server each time a connection is opened."""
        if self._verify is not None:
            self._verify(partial(_texts_of, connection))


def decoded_map(reply: object) -> dict[str, str]:
    """Decodes a reply of HGETALL, a map or a flat list, to a dict of texts."""
    flat = cast("dict[bytes, bytes] | list[bytes]", reply)
    pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
    return {name.decode(): value.decode() for name, value in pairs}


def ms_of_time(reply: object) -> int:
    """Converts a reply of the Redis command TIME to milliseconds."""
    seconds, micros = cast("list[bytes]", reply)
    return int(seconds) * 1000 + int(micros) // 1000


def _disconnect(connection: ConnectionInterface) -> None:
    connection.disconnect()  # type: ignore[no-untyped-call]


def _send(connection: ConnectionInterface, command: bytes) -> bytes:
    (reply,) = _send_all(connection, [command])
    return reply


def _texts_of(
    connection: ConnectionInterface, commands: Sequence[Sequence[str]]
) -> list[str | None]:
    answers: list[bytes | None] = list(_send_all(connection, [_command(*c) for c in commands]))
    return [None if reply is None else reply.decode() for reply in answers]


def _send_all(connection: ConnectionInterface, commands: Sequence[bytes]) -> list[bytes]:
    connection.send_packed_command([b"".join(commands)])  # type: ignore[no-untyped-call]
    return [connection.read_response(disable_decoding=True) for _ in commands]


class _FunctionCalls:
    """Calls by FCALL: a library of functions that the server stores (Redis 7)."""

    def __init__(self, read: Reader) -> None:
        self._library = library(read)
        self.heads = {verb: _head("FCALL", self._library.function(verb)) for verb in VERBS}

    def reply(
        self, connection: ConnectionInterface, name: Verb, count: bytes, rest: bytes
    ) -> bytes | None:
        """Call the function; None if the server does not allow functions."""
        command = b"".join([count, self.heads[name], rest])
        try:
            try:
                return _send(connection, command)
            except ResponseError as error:
                if "Function not found" not in str(error):
                    raise
            self._load(connection)
            return _send(connection, command)
        except ResponseError as error:
            if _NO_FUNCTIONS.search(str(error)):
                return None
            raise

    def _load(self, connection: ConnectionInterface) -> None:
        since = time.time_ns() // 1_000_000
        try:
            _send(connection, _command("FUNCTION", "LOAD", self._library.text(since)))
        except ResponseError as error:
            if "already exists" not in str(error):  # another process was faster
                raise
        with suppress(ResponseError):  # the ACL may forbid FUNCTION LIST
            _delete_old_libraries(connection)


def _delete_old_libraries(connection: ConnectionInterface) -> None:
    """Delete the libraries of old versions; a process that still needs one loads it again."""
    libraries = _send(connection, _command("FUNCTION", "LIST", "LIBRARYNAME", f"{PREFIX}*"))
    names = re.findall(rf"{PREFIX}(\d+)_([0-9a-f]{{16}})'", str(libraries))
    for since, mark in sorted(names, key=lambda name: -int(name[0]))[KEPT:]:
        with suppress(ResponseError):  # another process deleted it
            _send(connection, _command("FUNCTION", "DELETE", f"{PREFIX}{since}_{mark}"))


class _ScriptCalls:
    """Calls by EVALSHA: one script per verb."""

    def __init__(self, read: Reader) -> None:
        self._texts = {verb: script(verb, read) for verb in VERBS}
        self.heads = {
            verb: _head("EVALSHA", sha1(text.encode()).hexdigest())  # noqa: S324 - as Redis names it
            for verb, text in self._texts.items()
        }

    def reply(
        self, connection: ConnectionInterface, name: Verb, count: bytes, rest: bytes
    ) -> bytes:
        command = b"".join([count, self.heads[name], rest])
        try:
            return _send(connection, command)
        except NoScriptError:
            _send(connection, _command("SCRIPT", "LOAD", self._texts[name]))
            return _send(connection, command)


def _rest(values: Sequence[str]) -> tuple[bytes, bytes]:
    """The RESP parts before and after a call's head."""
    raws = [value.encode() for value in values]
    return b"*%d\r\n" % (_HEAD + len(raws)), b"".join(
        [b"$%d\r\n%b\r\n" % (len(r), r) for r in raws]
    )


def _head(command: str, name: str) -> bytes:
    """The RESP head of a call: command, name and the number of keys, three."""
    return b"".join(map(_part, (command, name, "3")))


def _command(*parts: str) -> bytes:
    return b"".join([b"*%d\r\n" % len(parts), *map(_part, parts)])


def _part(value: str) -> bytes:
    raw = value.encode()
    return b"$%d\r\n%b\r\n" % (len(raw), raw)


class Call(NamedTuple):
    """Arguments of a transition."""

    arguments: Mapping[str, JsonValue]
    outcome: str = ""
    ledger: str = ""
    transcript: Sequence[str] = ()
