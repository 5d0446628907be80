"""Keeps one client process for each MCP server of tools.toml, and restarts it with a back-off."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import psutil
from pydantic import JsonValue

from app.truncate import cut
from leadhand import process_guard
from tasks.periodic import STEADY, Pace
from workers.processes import environment
from workers.processes.orphans import no_fork
from workers.processes.process import unlimited
from workers.processes.user_folders import claim_folder
from workers.registry.tool_book import ToolBook, why_no_command
from workers.registry.tool_entry import McpServer, missing_variable
from workers.registry.tool_servers import ServerState
from workers.tool_servers.redaction import without_values

log = logging.getLogger(__name__)
#: Seconds between two looks at the file and the processes.
_LOOK_S = 0.25
#: The same while the worker rests: files may change, and a server may end.
_REST_S = 5.0
#: Seconds before the first restart, doubled each time up to the most; and how long a client must
#: work until its next restart counts as the first one.
FIRST_S, MOST_S, STEADY_S = 0.5, 60.0, 60.0
#: Failures in a row after which submits are refused; until then calls wait for the restart.
PATIENCE = 3
#: Seconds that a client gets to end.
_END_S = 5.0
_WHY_LIMIT = 1_000
#: The entry that runs a client.
_CLIENT = "mcp-client"
#: Characters of a path that leave room for the name of a socket.
_PATH_LIMIT = 30
#: Seconds between two checks whether the call must end.
_POLL_S = 0.05
#: Seconds that a call waits for a server that is being started or restarted.
_AWAY_S = 60.0
_CHUNK = 64 * 1024
#: The most bytes of an answer.
_ANSWER_BYTES = 8 * 1024 * 1024


class ToolServers:
    """The clients of a worker's MCP servers, in a folder of their own."""

    def __init__(
        self,
        folder: Path,
        book: Callable[[], ToolBook],
        *,
        hosts: tuple[str, ...] = (),
        pace: Pace = STEADY,
    ) -> None:
        self._pace = pace
        self._folder = folder
        self._book = book
        self._hosts = hosts
        self._clients: dict[str, _Client] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tool servers", daemon=True)

    def start(self) -> None:
        """Delete folders of dead workers, then start the thread that runs MCP server clients."""
        remove_stale_folders()
        self._thread.start()

    def stop(self) -> None:
        """End all clients of MCP servers and delete their folder."""
        self._stop.set()
        self._pace.touch()
        if self._thread.ident is not None:
            self._thread.join(timeout=30)
        for client in self._clients.values():
            client.end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self.supervise()
            except Exception:  # one faulty entry must not end the others' clients
                log.exception("tool servers failed, will be looked at again")
            self._pace.wait(self._stop, _LOOK_S, _REST_S)

    def supervise(self) -> None:
        """Start, restart and end client processes, by tools.toml and the state of each process."""
        book = self._book()
        wanted = {name: (entry, book.folders[name]) for name, entry in book.servers.items()}
        for name, client in [*self._clients.items()]:
            if wanted.get(name) != (client.entry, client.cwd):
                client.end()
                client.state.unlink(missing_ok=True)
                del self._clients[name]
        for name, (entry, cwd) in wanted.items():
            if name not in self._clients:
                claim_folder(self._folder)
                self._clients[name] = _Client(name, entry, cwd, self._folder, self._hosts)
            self._clients[name].supervise(environment.inherited())


class _Client:
    """The process of one client."""

    def __init__(
        self, name: str, entry: McpServer, cwd: Path, folder: Path, hosts: tuple[str, ...]
    ) -> None:
        self.name = name
        self.entry = entry
        self.cwd = cwd
        self.state = folder / f"{name}.json"
        self._socket = folder / f"{name}.sock"
        self._hosts = hosts
        self._process: subprocess.Popen[bytes] | None = None
        self._failures = 0
        self._held: Mapping[str, str] = {}
        self._due_s = self._began_s = time.monotonic()

    def supervise(self, held: Mapping[str, str]) -> None:
        """Start the process if it is time for it; note how it ended if it has."""
        if self._process is None:
            if time.monotonic() >= self._due_s:
                self._begin(held)
        elif self._process.poll() is not None:
            self._ended(self._process)

    def end(self) -> None:
        """End the process and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.communicate(timeout=_END_S)
        except subprocess.TimeoutExpired:
            process.send_signal(process_guard.CUT)
            process.communicate()

    def _begin(self, held: Mapping[str, str]) -> None:
        self._held = held
        why = self._why_not(held)
        if why is not None:
            return self._wait(why)
        self._socket.unlink(missing_ok=True)
        self._began_s = time.monotonic()
        with no_fork():
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [*process_guard.command(), sys.executable, "-P", "-m", "leadhand.serve", _CLIENT],
                env=environment.clean(held, named=self.entry.variables),
                cwd="/",
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            # A fork that still had this pipe open would keep the client waiting for its end.
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.write(self._settings())
                self._process.stdin.close()
            self._process.stdin = None
        return None

    def _settings(self) -> bytes:
        fields = {
            "entry": self.entry.model_dump(mode="json", exclude_unset=True),
            "folder": str(self.cwd),
            "state": str(self.state),
            "socket": str(self._socket),
            "hosts": self._hosts,
        }
        return json.dumps(fields).encode()

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        said, _ = process.communicate()
        self._process = None
        if time.monotonic() - self._began_s >= STEADY_S:
            self._failures = 0
        why = (
            said.decode(errors="replace").strip() or f"its client exited with {process.returncode}"
        )
        self._wait(why)

    def _wait(self, why: str) -> None:
        """Note why the server is away, without its secrets, and when it is started again."""
        why = cut(without_values(why, self.entry, self._held), _WHY_LIMIT)
        self._failures += 1
        after_s = min(MOST_S, FIRST_S * 2 ** (self._failures - 1))
        self._due_s = time.monotonic() + after_s
        log.warning("tool server is away", extra={"server": self.name, "why": why})
        before = _state(self.state)
        is_known = bool(before.tools) and self._failures < PATIENCE
        text = None if is_known else f"server {self.name!r} is away: {why}"
        ServerState(tools=before.tools, why_not=text).write(self.state)

    def _why_not(self, held: Mapping[str, str]) -> str | None:
        """What the server needs and is missing here; None if nothing is."""
        missing = missing_variable(self.entry.needs_env, held)
        if missing is not None:
            return f"the variable {missing} is not set; set it in the worker's environment"
        if self.entry.command is None:
            return None
        return why_no_command(self.entry.command, held)


def _state(file: Path) -> ServerState:
    try:
        return ServerState.model_validate_json(file.read_bytes())
    except (OSError, ValueError):
        return ServerState()


def servers_folder(worker_pid: int) -> Path:
    """Returns the folder for the sockets of a worker's MCP servers; its path is short."""
    return _temporary() / f"{_prefix()}{worker_pid}"


def remove_stale_folders() -> None:
    """Delete the socket folders of workers that have died."""
    for folder in _temporary().glob(f"{_prefix()}*"):
        pid = folder.name.removeprefix(_prefix())
        if pid.isdigit() and not psutil.pid_exists(int(pid)) and _is_ours(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return folder.lstat().st_uid == os.getuid()
    return False


def _temporary() -> Path:
    folder = Path(tempfile.gettempdir())
    return folder if len(str(folder)) <= _PATH_LIMIT else Path("/tmp")  # noqa: S108


def _prefix() -> str:
    return f"leadhand-mcp-{os.getuid()}-"


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
