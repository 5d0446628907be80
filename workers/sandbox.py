"""Runs one command as a real process tree, with a deadline, bounded output and a clean end."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from workers import launch
from workers.capture import Capture, Captured
from workers.strays import MARK, kill_strays

#: How long a command may take to end when it is asked to, before it is killed.
GRACE_S = 2.0
#: How long the launcher may take beyond that, before it is thought lost itself.
_LAUNCHER_S = 8.0
_POLL_S = 0.05
_CHUNK = 64 * 1024
#: Bytes that one more look takes from a pipe whose tree has ended.
_LAST_LOOK = 1024 * 1024

End = Literal["timed_out", "cancelled"]
Lack = Literal["folder", "program", "permission", "room"]


@dataclass(frozen=True)
class Command:
    """What is to be run; a text goes through the shell, a tuple runs as it is."""

    line: str | tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    #: A folder of this run's own, for its prompt and for output that is too long to keep.
    spill: Path
    timeout_s: float
    #: Written to a file that LEADHAND_PROMPT_FILE names.
    prompt: str | None = None
    #: Whether the prompt is standard input too; it is empty otherwise.
    feeds_prompt: bool = True
    grace_s: float = GRACE_S
    #: Is handed what comes on standard output as it comes; must bear whatever that is.
    on_output: Callable[[bytes], None] | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        return ("/bin/sh", "-c", self.line) if isinstance(self.line, str) else self.line


@dataclass(frozen=True)
class ProcessResult:
    """How a command ended and what it wrote."""

    #: None where it was ended by a signal or never started.
    exit_code: int | None
    signal: int | None
    stdout: Captured
    stderr: Captured
    started_ms: int
    ended_ms: int
    timed_out: bool = False
    cancelled: bool = False
    through_shell: bool = False
    #: Why it could not start at all.
    not_started: str | None = None
    #: What it lacked: a folder or a program that is there, the right to run it, room for arguments.
    lacks: Lack | None = None

    @property
    def succeeded(self) -> bool:
        return self.exit_code == 0 and not (self.timed_out or self.cancelled or self.not_started)


def run(command: Command, cancel: threading.Event) -> ProcessResult:
    """Run a command to its end, its deadline or the cancel; its tree is gone when this returns."""
    started_ms = _now_ms()
    try:
        with _Run(command) as child:
            child.follow(cancel)
            return child.result(started_ms)
    except (OSError, ValueError) as error:
        nothing = Captured()
        why = _why_not(error, command)
        too_long = isinstance(error, OSError) and error.errno == errno.E2BIG
        result = ProcessResult(None, None, nothing, nothing, started_ms, _now_ms())
        return replace(result, not_started=why, lacks="room" if too_long else None)


class _Run:
    """One launcher and the three pipes that lead back from it."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._mark = secrets.token_hex(8)
        self._stdout = Capture(command.spill / "stdout.log")
        self._stderr = Capture(command.spill / "stderr.log")
        self._status = b""
        self._ended_ms: int | None = None
        self._why: End | None = None
        self._process, self._lifeline, self._status_pipe = _launch(command, self._mark)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._cut_lifeline()
        self._collect_launcher()
        os.close(self._status_pipe)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def follow(self, cancel: threading.Event) -> None:
        """Read until the launcher has gone, and have the tree ended when it is time."""
        deadline = time.monotonic() + self._command.timeout_s
        give_up_at = float("inf")
        with selectors.DefaultSelector() as selector:
            self._listen(selector)
            while self._status_pipe in selector.get_map() and time.monotonic() < give_up_at:
                self._read(selector)
                self._why = self._why or self._reason_to_end(cancel, deadline)
                if self._why is not None:
                    self._cut_lifeline()
                if (self._why or self._status) and give_up_at == float("inf"):
                    give_up_at = time.monotonic() + self._command.grace_s + _LAUNCHER_S
        self._last_look()

    def result(self, started_ms: int) -> ProcessResult:
        """How it ended, once all of it has."""
        self._collect_launcher()
        word, _, rest = self._status.partition(b"\n")[0].decode().partition(" ")
        code = int(rest) if word == "exit" else None
        return ProcessResult(
            exit_code=code,
            signal=int(rest) if word == "signal" else None,
            stdout=self._stdout.close(),
            stderr=self._stderr.close(),
            started_ms=started_ms,
            ended_ms=self._ended_ms or _now_ms(),
            timed_out=self._why == "timed_out",
            cancelled=self._why == "cancelled",
            through_shell=isinstance(self._command.line, str),
            not_started=_refused(word, rest, self._command),
            lacks=_lack(word, rest),
        )

    def _listen(self, selector: selectors.BaseSelector) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        takers: list[tuple[int, Callable[[bytes], None]]] = [
            (self._process.stdout.fileno(), self._take_stdout),
            (self._process.stderr.fileno(), self._stderr.write),
            (self._status_pipe, self._take_status),
        ]
        for pipe, take in takers:
            os.set_blocking(pipe, False)
            selector.register(pipe, selectors.EVENT_READ, take)

    def _read(self, selector: selectors.BaseSelector) -> None:
        for key, _ in selector.select(_POLL_S):
            chunk = os.read(key.fd, _CHUNK)
            if chunk:
                key.data(chunk)
            else:
                selector.unregister(key.fd)

    def _take_stdout(self, chunk: bytes) -> None:
        self._stdout.write(chunk)
        if self._command.on_output is not None:
            self._command.on_output(chunk)

    def _take_status(self, chunk: bytes) -> None:
        self._status += chunk
        self._ended_ms = self._ended_ms or _now_ms()

    def _reason_to_end(self, cancel: threading.Event, deadline: float) -> End | None:
        """Why the tree must go now; a command that has ended by itself is left its end."""
        if self._status:
            return None
        if cancel.is_set():
            return "cancelled"
        return "timed_out" if time.monotonic() >= deadline else None

    def _last_look(self) -> None:
        """Take what still lies in the pipes; whoever escaped may hold them open for ever."""
        for pipe, take in (
            (self._process.stdout, self._take_stdout),
            (self._process.stderr, self._stderr.write),
        ):
            assert pipe is not None
            taken = 0
            with contextlib.suppress(BlockingIOError):
                while taken < _LAST_LOOK and (chunk := os.read(pipe.fileno(), _CHUNK)):
                    take(chunk)
                    taken += len(chunk)

    def _cut_lifeline(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1

    def _collect_launcher(self) -> None:
        """Wait for the launcher's end; if it did not finish its work, finish it."""
        try:
            code = self._process.wait(timeout=0 if self._process.returncode is not None else 1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code != 0:
            kill_strays(self._mark)


def _launch(command: Command, mark: str) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the launcher; answers it, our end of its lifeline, and its status pipe."""
    command.spill.mkdir(mode=0o700, parents=True, exist_ok=True)
    env = {**command.env, MARK: mark}
    with contextlib.ExitStack() as theirs:
        if command.prompt is not None:
            env["LEADHAND_PROMPT_FILE"] = str(_write_prompt(command))
        given = command.spill / _PROMPT if _feeds(command) else Path(os.devnull)
        stdin = theirs.enter_context(given.open("rb"))
        lifeline, ours = os.pipe()
        theirs.callback(os.close, lifeline)
        status, says = os.pipe()
        theirs.callback(os.close, says)
        try:
            process = _start(command, env, stdin=stdin.fileno(), pipes=(lifeline, says))
        except BaseException:
            os.close(ours)
            os.close(status)
            raise
    return process, ours, status


def _start(
    command: Command, env: Mapping[str, str], *, stdin: int, pipes: tuple[int, int]
) -> subprocess.Popen[bytes]:
    told = [str(pipes[0]), str(pipes[1]), str(command.grace_s), str(command.cwd)]
    return subprocess.Popen(  # noqa: S603 - running commands is what this module is for
        [sys.executable, "-I", "-S", launch.__file__, *told, *command.argv],
        env=dict(env),
        cwd="/",
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=pipes,
        start_new_session=True,
    )


_PROMPT = "prompt.md"


def _feeds(command: Command) -> bool:
    return command.prompt is not None and command.feeds_prompt


def _write_prompt(command: Command) -> Path:
    path = command.spill / _PROMPT
    path.write_text(command.prompt or "", encoding="utf-8", errors="replace")
    path.chmod(0o600)
    return path


def _refused(word: str, rest: str, command: Command) -> str | None:
    if word != "refused":
        return None
    step, _, number = rest.partition(" ")
    why = os.strerror(int(number))
    if step == "cwd":
        return f"cannot work in {str(command.cwd)!r}: {why}"
    if int(number) == errno.E2BIG:
        return _why_not(OSError(errno.E2BIG, why), command)
    return f"cannot run {command.argv[0]!r}: {why}"


def _lack(word: str, rest: str) -> Lack | None:
    step, _, number = rest.partition(" ")
    if word != "refused":
        return None
    if step == "cwd":
        return "folder"
    lacks: dict[int, Lack] = {errno.E2BIG: "room", errno.EACCES: "permission"}
    return lacks.get(int(number), "program")


def _why_not(error: OSError | ValueError, command: Command) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"cannot run {command.argv[0]!r}: its arguments are too long; use standard input"
    return f"cannot run {command.argv[0]!r}: {error}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
