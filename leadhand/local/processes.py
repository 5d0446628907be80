"""Starts, marks and guards child processes, and finds locks and ports for them.

`app`, `api` and `tasks` are common names. So the current folder is not on sys.path (-P), and
PYTHONPATH is ignored unless this package was found through it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from leadhand import process_guard

#: Seconds that a killed tree gets to end.
_VANISH_S = 15.0
_LOOK_S = 0.01


class GuardedProcess:
    """A running command, with its output appended to a log."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path,
        log: Path,
        env: Mapping[str, str] | None = None,
        read: Path = Path(os.devnull),
        pass_fds: Sequence[int] = (),
        umask: int = -1,
    ) -> None:
        self._asked = False
        with log.open("ab") as output, read.open("rb") as source:
            self._process = subprocess.Popen(  # noqa: S603 - an argv, no shell
                [*process_guard.command(), *command],
                cwd=cwd,
                env=env,
                stdin=source,
                stdout=output,
                stderr=output,
                pass_fds=pass_fds,
                umask=umask,
                start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            )

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the process; None while it runs."""
        return self._process.poll()

    def ask_to_end(self) -> None:
        """Send SIGTERM, only once: a second one makes a worker abandon its steps."""
        if not self._asked:
            self._asked = True
            self._send(signal.SIGTERM)

    def end(self, *, within_s: float, is_urgent: Callable[[], bool] = lambda: False) -> None:
        """Send SIGTERM to the process; kill its tree if it does not end in time.

        The time is over, too, once `is_urgent` returns True.
        """
        self.ask_to_end()
        give_up = time.monotonic() + within_s
        while self.exit_code is None:
            if time.monotonic() >= give_up or is_urgent():
                self.cut()
                return
            time.sleep(_LOOK_S)

    def cut(self) -> None:
        """Kill the process and all its descendants."""
        self._send(process_guard.CUT)
        self._process.wait(_VANISH_S)

    def _send(self, number: int) -> None:
        self._process.send_signal(number)
        self._process.send_signal(signal.SIGCONT)  # one that is stopped would not receive it


def open_lock(path: Path) -> int:
    """Opens or creates a lock file and returns its descriptor; it is not locked yet.

    A process that inherits the descriptor shares the lock.
    """
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def require_support(folder: Path) -> None:
    """Raise OSError if the folder's file system has no locks."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        share(opened)
    finally:
        os.close(opened)


def take(lock: int) -> bool:
    """Takes the exclusive file lock; returns False at once if another process holds it."""
    return _try(lock, fcntl.LOCK_EX)


def wait(lock: int) -> None:
    """Takes the exclusive file lock; waits while another process holds it."""
    fcntl.flock(lock, fcntl.LOCK_EX)


def share(lock: int) -> bool:
    """Takes the shared file lock; returns False at once if a process holds the exclusive one."""
    return _try(lock, fcntl.LOCK_SH)


def mark(lock: int) -> None:
    """Changes the mark of the lock file, which every process with the open file can read."""
    now = time.time_ns()  # finer than the clock of the file system
    os.utime(lock, ns=(now, now))


def read_mark(lock: int) -> int:
    """Returns the mark of the lock file."""
    return os.fstat(lock).st_mtime_ns


def free(lock: int) -> None:
    """Releases the file lock of an open descriptor; the descriptor stays open."""
    fcntl.flock(lock, fcntl.LOCK_UN)


def is_that_file(lock: int, path: Path) -> bool:
    """Whether the path still refers to the locked file: it was not removed or replaced."""
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def free_port(wanted: int = 0) -> int:
    """Returns the wanted port if it is free, otherwise one that the system chooses."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


#: The folder that has this package and those that are installed with it.
ROOT = Path(__file__).resolve().parents[2]


def python_module(module: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the command line that runs a Python module."""
    ignore = () if _found_by_environment(env) else ("-E",)
    return (sys.executable, "-P", *ignore, "-m", module)


def service_command(service: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Returns the command line that runs a service of `leadhand.serve`."""
    return (*python_module("leadhand.serve", env), service)


def only_ours(env: Mapping[str, str]) -> dict[str, str]:
    """Copies an environment; its PYTHONPATH, if Leadhand is found by it, has only that folder."""
    if not _found_by_environment(env):
        return dict(env)
    return {**env, "PYTHONPATH": str(ROOT)}


def _found_by_environment(env: Mapping[str, str]) -> bool:
    entries = env.get("PYTHONPATH", "").split(os.pathsep)
    return any(entry and Path(entry).resolve() == ROOT for entry in entries)
