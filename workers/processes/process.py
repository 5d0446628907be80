"""Runs one command as a process tree, with a timeout, a lease, bounded output and no leftovers."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

import psutil

from app.fleet.inventory import why_no_folder
from app.fleet.troubles import folder_trouble
from workers.processes import launcher
from workers.processes.lease_renewal import LeaseRenewal
from workers.processes.orphans import MARK, kill_orphans, new_mark
from workers.processes.output import Capture, Captured
from workers.processes.user_folders import claim_session_folder, create_file

#: What a disk says to which nothing can be written.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
#: Seconds between SIGTERM and SIGKILL.
GRACE_S = 2.0
#: Seconds that the launcher gets beyond that before it is killed itself.
_LAUNCHER_S = 8.0
_POLL_S = 0.05
_CHUNK = 64 * 1024
#: The most bytes read from a pipe after its tree has ended.
_DRAIN_BYTES = 1024 * 1024
#: The longest report.
REPORT_BYTES = 32 * 1024 * 1024
#: The programs that sign commits for git, and those that ask for a passphrase for them; not daemons
#: that a signature leaves behind, such as gpg-agent.
_SIGNER = re.compile(r"gpg2?|gpgsm|ssh-keygen|ssh-sk-helper|pinentry.*")
End = Literal["timed_out", "cancelled", "stuck"]
Lack = Literal["folder", "program", "permission", "room"]


class NoRoom(Exception):
    """A body could not start: the disk of the attempt's folder is full."""


def is_no_room(error: BaseException) -> bool:
    """Whether the error means that a disk is full."""
    return isinstance(error, OSError) and error.errno in _NO_ROOM


def check_room(error: BaseException, folder: Path) -> None:
    """Raises NoRoom if the error means that the folder's disk is full, and it still is.

    Otherwise a body that needs more room than there ever is would start again and again.
    """
    if not is_no_room(error):
        return
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    why = folder_trouble(folder)
    if why is not None:
        raise NoRoom(why) from error


def unlimited() -> float:
    """Returns infinity: the end of a lease that never expires."""
    return float("inf")


@dataclass(frozen=True)
class Command:
    """A command to run: text goes through the shell, a tuple is executed directly."""

    line: str | tuple[str, ...]
    cwd: Path
    env: Mapping[str, str]
    #: This run's own folder, for its prompt and for output too long for memory.
    spill: Path
    timeout_s: float
    #: Written to the file that LEADHAND_PROMPT_FILE names.
    prompt: str | None = None
    #: The doer's answer for a program that judges it: LEADHAND_RESULT_FILE names its file.
    result: str | None = None
    #: A named pipe to make, into which the command may write a report.
    report: Path | None = None
    #: Whether standard input is the prompt; otherwise it is empty.
    feeds_prompt: bool = True
    grace_s: float = GRACE_S
    #: Called with each chunk of standard output; must not raise.
    on_output: Callable[[bytes], None] | None = None
    #: Whether the command waits for something without end: then it is ended, too.
    is_stuck: Callable[[], bool] = field(default=lambda: False)
    #: Called with each chunk of either output, for live output; must not raise.
    on_read: Callable[[Literal["stdout", "stderr"], bytes], None] | None = None
    #: Returns when the attempt's lease expires, on the monotonic clock: the launcher kills the
    #: tree then, even if this process is frozen.
    until: Callable[[], float] = field(default=unlimited)

    @property
    def argv(self) -> tuple[str, ...]:
        """Return the program and its arguments; a command line runs in a shell."""
        return ("/bin/sh", "-c", self.line) if isinstance(self.line, str) else self.line


@dataclass(frozen=True)
class ProcessResult:
    """The end of a command: exit code or signal, output, times."""

    #: None if a signal ended it or it did not start.
    exit_code: int | None
    signal: int | None
    stdout: Captured
    stderr: Captured
    started_ms: int
    ended_ms: int
    timed_out: bool = False
    cancelled: bool = False
    #: The program that signs commits for which it waited when its time was over; '' for none.
    signer: str = ""
    through_shell: bool = False
    #: Why it could not start.
    not_started: str | None = None
    #: What was missing: the folder, the program, permission to run it, or room for its arguments.
    lacks: Lack | None = None
    #: What was written into the pipe for its report, up to REPORT_BYTES and one chunk more.
    report: bytes = b""

    @property
    def succeeded(self) -> bool:
        """Whether the process ran to its end and exited with 0."""
        return self.exit_code == 0 and not (self.timed_out or self.cancelled or self.not_started)


def run(command: Command, cancel: threading.Event) -> ProcessResult:
    """Run a command until it ends, times out or is cancelled; its whole process tree ends with it.

    Raises NoRoom if the disk of its spill folder is full.
    """
    started_ms = _now_ms()
    try:
        with _Run(command) as child:
            child.follow(cancel)
            return child.result(started_ms)
    except (OSError, ValueError) as error:
        check_room(error, command.spill)
        nothing = Captured()
        why = _why_not(error, command)
        too_long = isinstance(error, OSError) and error.errno == errno.E2BIG
        result = ProcessResult(None, None, nothing, nothing, started_ms, _now_ms())
        return replace(result, not_started=why, lacks="room" if too_long else None)


class _Run:
    """One launcher process and its three pipes: stdout, stderr and status."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._mark = new_mark()
        self._stdout = Capture(command.spill / "stdout.log")
        self._stderr = Capture(command.spill / "stderr.log")
        self._status = b""
        self._ended_ms: int | None = None
        self._why: End | None = None
        self._signer = ""
        self._report, self._report_pipe = bytearray(), _open_report(command)
        until = command.until()
        try:
            self._process, lifeline, self._status_pipe = _launch(command, self._mark, until=until)
        except BaseException:
            self._close_report()
            raise
        self._renewal = LeaseRenewal(lifeline, command.until, sent=until)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._renewal.cut()
        self._collect_launcher()
        os.close(self._status_pipe)
        self._close_report()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def follow(self, cancel: threading.Event) -> None:
        """Read output until the launcher ends; end the tree on timeout or cancel."""
        deadline = time.monotonic() + self._command.timeout_s
        give_up_at = float("inf")
        self._renewal.start(cancel)
        with selectors.DefaultSelector() as selector:
            self._listen(selector)
            while self._status_pipe in selector.get_map() and time.monotonic() < give_up_at:
                self._read(selector)
                self._why = self._why or self._reason_to_end(cancel, deadline)
                if self._why is not None:
                    if self._why == "timed_out" and give_up_at == float("inf"):
                        self._signer = _find_signer(self._process.pid)
                    self._renewal.cut()
                if (self._why or self._status) and give_up_at == float("inf"):
                    give_up_at = time.monotonic() + self._command.grace_s + _LAUNCHER_S
        self._drain_pipes()

    def result(self, started_ms: int) -> ProcessResult:
        """The result, after the launcher has ended."""
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
            cancelled=self._why == "cancelled" or word == "lease",
            signer=self._signer,
            through_shell=isinstance(self._command.line, str),
            not_started=_why_refused(word, rest, self._command),
            lacks=_lack(word, rest, self._command),
            report=bytes(self._report),
        )

    def _listen(self, selector: selectors.BaseSelector) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        takers: list[tuple[int, Callable[[bytes], None]]] = [
            (self._process.stdout.fileno(), self._take_stdout),
            (self._process.stderr.fileno(), self._take_stderr),
            (self._status_pipe, self._take_status),
        ]
        if self._report_pipe is not None:
            takers.append((self._report_pipe, self._take_report))
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
        if self._command.on_read is not None:
            self._command.on_read("stdout", chunk)

    def _take_stderr(self, chunk: bytes) -> None:
        self._stderr.write(chunk)
        if self._command.on_read is not None:
            self._command.on_read("stderr", chunk)

    def _take_report(self, chunk: bytes) -> None:
        if len(self._report) <= REPORT_BYTES:
            self._report += chunk

    def _take_status(self, chunk: bytes) -> None:
        self._status += chunk
        self._ended_ms = self._ended_ms or _now_ms()

    def _reason_to_end(self, cancel: threading.Event, deadline: float) -> End | None:
        """Whether to end the tree now, and why; None once the command has ended by itself."""
        if self._status:
            return None
        if cancel.is_set():
            return "cancelled"
        if self._command.is_stuck():
            return "stuck"
        return "timed_out" if time.monotonic() >= deadline else None

    def _drain_pipes(self) -> None:
        """Read the rest of the pipes without blocking: an orphan may hold them open."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        takers = [
            (self._process.stdout.fileno(), self._take_stdout),
            (self._process.stderr.fileno(), self._take_stderr),
        ]
        if self._report_pipe is not None:
            takers.append((self._report_pipe, self._take_report))
        for pipe, take in takers:
            taken = 0
            with contextlib.suppress(BlockingIOError):
                while taken < _DRAIN_BYTES and (chunk := os.read(pipe, _CHUNK)):
                    take(chunk)
                    taken += len(chunk)

    def _close_report(self) -> None:
        if self._report_pipe is not None and self._command.report is not None:
            os.close(self._report_pipe)
            self._command.report.unlink(missing_ok=True)

    def _collect_launcher(self) -> None:
        """Wait for the launcher to end; kill the orphans that it left."""
        try:
            code = self._process.wait(timeout=0 if self._process.returncode is not None else 1)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code != 0:
            kill_orphans(self._mark)


def _find_signer(launcher_pid: int) -> str:
    """The name of a program in a process tree that signs commits; '' if there is none."""
    with contextlib.suppress(psutil.Error):
        for process in psutil.Process(launcher_pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if _SIGNER.fullmatch(process.name()):
                    return process.name()
    return ""


def _open_report(command: Command) -> int | None:
    """Make the pipe for a command's report and open it; None if it has none.

    It is open for writing too, so that it does not end between two programs that report.
    """
    if command.report is None:
        return None
    claim_session_folder(command.report.parent)
    command.report.unlink(missing_ok=True)
    os.mkfifo(command.report, 0o600)
    return os.open(command.report, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)


def _launch(
    command: Command, mark: str, *, until: float
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start the launcher; return it, the writing end of its lifeline, and its status pipe."""
    claim_session_folder(command.spill)
    env = {**command.env, MARK: mark}
    with contextlib.ExitStack() as theirs:
        if command.prompt is not None:
            env["LEADHAND_PROMPT_FILE"] = str(_write_text(command, _PROMPT, command.prompt))
        if command.result is not None:
            env["LEADHAND_RESULT_FILE"] = str(_write_text(command, _RESULT, command.result))
        source = command.spill / _PROMPT if _feeds(command) else Path(os.devnull)
        stdin = theirs.enter_context(source.open("rb"))
        lifeline, ours = os.pipe()
        os.set_blocking(ours, False)
        theirs.callback(os.close, lifeline)
        status, says = os.pipe()
        theirs.callback(os.close, says)
        try:
            process = _start(
                command, env, stdin=stdin.fileno(), pipes=(lifeline, says), until=until
            )
        except BaseException:
            os.close(ours)
            os.close(status)
            raise
    return process, ours, status


def _start(
    command: Command, env: Mapping[str, str], *, stdin: int, pipes: tuple[int, int], until: float
) -> subprocess.Popen[bytes]:
    options = [str(pipes[0]), str(pipes[1]), str(command.grace_s), repr(until), str(command.cwd)]
    return subprocess.Popen(  # noqa: S603 - running commands is what this module is for
        [sys.executable, "-I", "-S", launcher.__file__, *options, *command.argv],
        env=dict(env),
        cwd="/",
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
        pass_fds=pipes,
        start_new_session=True,
    )


_PROMPT, _RESULT = "prompt.md", "result.md"


def _feeds(command: Command) -> bool:
    return command.prompt is not None and command.feeds_prompt


def _write_text(command: Command, name: str, text: str) -> Path:
    path = command.spill / name
    try:
        with create_file(path) as file:
            file.write(text.encode(errors="replace"))
    except OSError:
        path.unlink(missing_ok=True)  # half a file must not keep the disk full
        raise
    return path


def _why_refused(word: str, rest: str, command: Command) -> str | None:
    if word != "refused":
        return None
    step, _, number = rest.partition(" ")
    why = os.strerror(int(number))
    if step == "cwd":
        return f"cannot work in {str(command.cwd)!r}: {why_no_folder(command.cwd) or why}"
    if int(number) == errno.E2BIG:
        return _why_not(OSError(errno.E2BIG, why), command)
    is_folder = "/" in command.argv[0] and (command.cwd / command.argv[0]).is_dir()
    return f"cannot run {command.argv[0]!r}: {'it is a folder' if is_folder else why}"


def _lack(word: str, rest: str, command: Command) -> Lack | None:
    step, _, number = rest.partition(" ")
    if word != "refused":
        return None
    if step == "cwd":
        return "folder"
    if (command.cwd / command.argv[0]).is_dir():
        return "program"
    lacks: dict[int, Lack] = {errno.E2BIG: "room", errno.EACCES: "permission"}
    return lacks.get(int(number), "program")


def _why_not(error: OSError | ValueError, command: Command) -> str:
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return f"cannot run {command.argv[0]!r}: its arguments are too long; use standard input"
    if is_no_room(error):
        where, why = str(command.spill), getattr(error, "strerror", error)
        return f"cannot write in {where!r}: {why}; make room on that disk"
    return f"cannot run {command.argv[0]!r}: {error}"


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
