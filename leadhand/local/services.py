"""The services of an embedded stack: each restarted when it dies, found from others, and ended."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

from leadhand.local import processes, user_state
from leadhand.local.errors import EmbeddedError, StackElsewhere
from leadhand.local.processes import GuardedProcess

_FIRST_DELAY_S = 0.25
_LONGEST_DELAY_S = 10.0
#: Seconds after which a service counts as started, so that the back-off is reset.
_RAN_WELL_S = 30.0
_LOOK_S = 0.02
#: What `ready` of `run.json` is until a worker is up.
API_ONLY = "api"
#: The file that says that a person has ended the services.
ENDED_FOR_GOOD = "ended"
#: Seconds in which the services should have ended; the worker gets most of them.
PATIENCE_S = 60.0
#: Seconds without a response after which the user gets a message.
SILENT_S = 5.0


class Service(Protocol):
    """A process that can be restarted and stopped."""

    @property
    def log(self) -> Path:
        """Return the path of the log file of the process."""

    def relaunch(self) -> None:
        """Start the process again."""

    def has_ended(self) -> bool:
        """Whether the process has ended, or was never started."""

    def output(self) -> str:
        """Return the end of what the process has written since it was last started."""

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        """Stop the process and wait for its end, only a moment if that is urgent and harmless."""


class Program:
    """A service that is a command with an environment; -1 leaves the umask as it is."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        home: Path,
        env: Mapping[str, str],
        stop_s: float,
        umask: int = -1,
    ) -> None:
        self._command = command
        self._umask = umask
        self._home = home
        self._env = env
        self._stop_s = stop_s
        self._process: GuardedProcess | None = None
        self._log_began = 0
        self.log = home / "log" / f"{name}.log"

    def relaunch(self) -> None:
        """Start the program's process."""
        self._log_began = user_state.size(self.log)
        # Run in the state folder: a server may read settings from its current folder.
        self._process = GuardedProcess(
            self._command, cwd=self._home, env=self._env, log=self.log, umask=self._umask
        )

    def has_ended(self) -> bool:
        """Whether the process has ended, or was never started."""
        return self._process is None or self._process.exit_code is not None

    def output(self) -> str:
        """Return the end of what the process has written since it was last started."""
        return user_state.tail(self.log, since=self._log_began)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the process without waiting."""
        if self._process:
            self._process.ask_to_end()

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        """Stop the process; kill it if it does not end in time, or if its end is urgent."""
        if self._process:
            self._process.end(within_s=self._stop_s, is_urgent=is_urgent)


class RestartedService:
    """Restarts one service when it ends; time is an argument."""

    def __init__(self, name: str, service: Service, *, began_s: float) -> None:
        self.name = name
        self.service = service
        self.ends_in_a_row = 0
        self._began_s = began_s
        self._due_s: float | None = None

    def check(self, now_s: float) -> str | None:
        """Restart the service with back-off once it has ended; return a message or None."""
        if self._due_s is not None:
            return self._start(now_s) if now_s >= self._due_s else None
        if not self.service.has_ended():
            return None
        if now_s - self._began_s > _RAN_WELL_S:
            self.ends_in_a_row = 0
        return f"{self.name} has ended; {self._schedule_restart(now_s)}"

    def _start(self, now_s: float) -> str:
        try:
            self.service.relaunch()
        except (EmbeddedError, OSError) as error:  # such as a full disk, which may be freed later
            return f"{self.name} cannot be started: {error}; {self._schedule_restart(now_s)}"
        self._began_s, self._due_s = now_s, None
        return f"{self.name} is restarted"

    def _schedule_restart(self, now_s: float) -> str:
        delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(self.ends_in_a_row, 10))
        self.ends_in_a_row += 1
        self._due_s = now_s + delay_s
        return f"it is restarted in {delay_s:g} s"


class Running(NamedTuple):
    """The supervisor of a state folder, from its start to its end."""

    #: 0 for one that starts, until it has written its id.
    pid: int
    #: The fields of `run.json`; empty while the services start or end.
    run: Mapping[str, str]


def find_running(home: Path) -> Running | None:
    """Returns the running supervisor of a state folder; None if none runs. Raises FolderUnfit."""
    path = home / "supervisor.lock"
    if not path.is_file():
        return None
    with user_state.fit(home):
        lock = processes.open_lock(path)
        try:
            if processes.take(lock):
                return None
            run = read_run(home)
            written = os.pread(lock, 32, 0).decode("ascii", "replace").strip()
        finally:
            os.close(lock)
    return Running(int(written) if written.isdecimal() else 0, run)


def read_run(home: Path) -> dict[str, str]:
    """Reads the fields of a state folder's `run.json` as texts; empty if it is missing.

    The services in it may have been killed.
    """
    return {name: str(value) for name, value in user_state.read_fields(home / "run.json").items()}


def require_here(home: Path, run: Mapping[str, str]) -> None:
    """Raise StackElsewhere if the services run on another machine, or in another container."""
    is_here = run.get("host") == socket.gethostname() or run.get("kernel") == (kernel_id() or None)
    if run and not is_here:
        why = f"they run on the machine {run.get('host')!r}, which shares this state folder"
        hint = "work there, or set LEADHAND_HOME to a local folder"
        raise StackElsewhere(str(home), why, hint)


def kernel_id() -> str:
    """Returns an id of the running kernel and its process namespace; '' if the system has none.

    Unlike the host's name it does not change while the services run.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def describe_silence(run: Mapping[str, str]) -> str:
    """Says that services do not respond, and which of their processes are stopped (SIGSTOP)."""
    pid = run.get("pid", "")
    stopped = _stopped_services(int(pid)) if pid.isdecimal() else []
    if not stopped:
        return f"the services (process {pid}) do not respond"
    verb = "is" if len(stopped) == 1 else "are"
    return f"the services (process {pid}) do not respond: {' and '.join(stopped)} {verb} stopped"


def _stopped_services(supervisor: int) -> list[str]:
    import psutil  # imported late: it is slow, and only needed here

    names = []
    with suppress(psutil.Error):
        process = psutil.Process(supervisor)
        for one in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                if one.status() == psutil.STATUS_STOPPED:
                    names.append("the supervisor" if one is process else _name(one.cmdline()))
    return list(dict.fromkeys(names))


def _name(words: Sequence[str]) -> str:
    """The name of a service by its command line."""
    last = words[-1] if words else ""
    return f"the {last.replace('api', 'API')}" if last in ("api", "worker") else "Redis"


def write_pid(lock: int) -> None:
    """Write the supervisor's process id into its lock file."""
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def end_services(
    home: Path,
    *,
    patience_s: float = PATIENCE_S,
    hands_back: bool = True,
    for_good: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> bool:
    """Stops the services of a state folder in order; returns False if none run.

    Without `hands_back` no step is at work that the worker would hand back: they end at once.
    `for_good` is noted until the next start, for a `leadhand up` that keeps them running.

    Raises StackElsewhere if they have not ended in time, or cannot be ended from here.
    """
    began = time.monotonic()
    give_up, asked, told = began + patience_s, 0, False
    while (running := find_running(home)) is not None:
        if running.pid and running.pid != asked:
            require_here(home, running.run)
            if for_good:
                (home / ENDED_FOR_GOOD).touch()
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGTERM)
                os.kill(running.pid, signal.SIGCONT)  # one that is stopped could not end
            asked = running.pid
        if not told and time.monotonic() > began + SILENT_S:
            say(
                f"waiting for the services to end (process {running.pid}), at most {patience_s:g} s"
            )
            told = True
        if time.monotonic() > give_up:
            why = f"process {running.pid or 'unknown'} did not end in {patience_s:g} s"
            raise StackElsewhere(str(home), why, f"see {str(home / 'log' / 'supervisor.log')!r}")
        if not hands_back:
            _let_command_wait(home)
        time.sleep(_LOOK_S)
    return asked != 0


def _let_command_wait(home: Path) -> None:
    """Mark the lock of commands as a command does that waits for the services' end."""
    lock = processes.open_lock(home / "commands.lock")
    try:
        processes.mark(lock)
    finally:
        os.close(lock)
