"""Calls a tool of an MCP server over the socket of its client process."""

from __future__ import annotations

import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from pydantic import JsonValue

from workers.processes.process import unlimited
from workers.registry.declared.served import ServerState

#: Seconds between two checks whether the call must end.
_POLL_S = 0.05
#: Seconds that a call waits for a server that is being started or restarted.
_AWAY_S = 60.0
_CHUNK = 64 * 1024
#: The most bytes of an answer.
_ANSWER_BYTES = 8 * 1024 * 1024


class Called(NamedTuple):
    """The result of a call, or why it has none."""

    text: str = ""
    value: JsonValue = None
    has_value: bool = False
    is_error: bool = False
    #: `away`: it was not sent. `closed`: the server ended during the call. `refused`: its error.
    end: Literal["timed_out", "cancelled", "away", "closed", "refused"] | None = None
    why: str = ""


def call(
    state: Callable[[], ServerState],
    tool: str,
    arguments: Mapping[str, JsonValue],
    *,
    timeout_s: float,
    cancel: threading.Event,
    until: Callable[[], float] = unlimited,
) -> Called:
    """Call a tool of an MCP server; return its result, or that it timed out or was cancelled.

    If the connection closes, the server's call is cancelled.
    """
    deadline = time.monotonic() + timeout_s

    def ended() -> Called | None:
        now = time.monotonic()
        if cancel.is_set() or now >= until():
            return Called(end="cancelled")
        return Called(end="timed_out") if now >= deadline else None

    give_up = min(deadline, time.monotonic() + _AWAY_S)
    fields = {"tool": tool, "arguments": arguments, "timeout_s": timeout_s}
    line = json.dumps(fields).encode() + b"\n"
    waiting = threading.Event()
    while True:
        found = _connect(state, give_up, ended)
        called = found if isinstance(found, Called) else _send(found, line, ended)
        if called.end != "away" or isinstance(found, Called):
            return called
        waiting.wait(_POLL_S)  # its client is about to end


def _send(connection: socket.socket, line: bytes, ended: Callable[[], Called | None]) -> Called:
    with connection:
        try:
            connection.sendall(line)
            return _receive(connection, ended)
        except OSError as error:
            return Called(end="closed", why=str(error))


def _connect(
    state: Callable[[], ServerState], give_up: float, ended: Callable[[], Called | None]
) -> socket.socket | Called:
    """A connection to the client, once it is there."""
    waiting = threading.Event()
    while True:
        known = state()
        if known.socket is not None:
            connection = socket.socket(socket.AF_UNIX)
            with contextlib.suppress(OSError):
                connection.connect(known.socket)
                return connection
            connection.close()
        end = ended()
        if end is not None and end.end == "cancelled":
            return end
        if end is not None or time.monotonic() >= give_up:
            return Called(end="away", why=known.why_not or "its client is being restarted")
        waiting.wait(_POLL_S)


def _receive(connection: socket.socket, ended: Callable[[], Called | None]) -> Called:
    readable, parts, size = select.poll(), list[bytes](), 0
    readable.register(connection, select.POLLIN)
    while True:
        if not readable.poll(_POLL_S * 1000):
            end = ended()
            if end is not None:
                return end
            continue
        chunk = connection.recv(_CHUNK)
        size += len(chunk)
        parts.append(chunk)
        if chunk.endswith(b"\n"):
            return _called(json.loads(b"".join(parts)))
        if not chunk or size > _ANSWER_BYTES:
            return Called(end="closed", why="its client ended")


def _called(answer: Mapping[str, JsonValue]) -> Called:
    if "failed" in answer:
        why = str(answer["failed"])
        if answer.get("is_away") is True:
            return Called(end="away", why=why)
        if answer.get("is_late") is True:
            return Called(end="timed_out")
        return Called(end="closed" if answer.get("is_closed") is True else "refused", why=why)
    return Called(
        text=str(answer.get("text", "")),
        value=answer.get("value"),
        has_value="value" in answer,
        is_error=answer.get("is_error") is True,
    )
