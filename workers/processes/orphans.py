"""Finds and kills the processes that commands left, by a mark in their environment.

A worker's main process forks its pool processes while its threads start programs and hold locks of
repositories. What is open at that moment is open in the fork, too, as long as that lives: a lock
(flock) that is never free again, or the pipe by which `subprocess` waits until a program has
started. `FD_CLOEXEC` does not help, as a fork starts no program.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from workers.processes import launcher

#: The variable that marks a command and its descendants, unless they clear it.
MARK = "LEADHAND_TREE"
#: Held by a fork, and while something is opened that it must not see.
_guard = threading.Lock()
_opened: set[int] = set()
#: Seconds to wait until a signal has taken effect.
_PATIENCE_S = 2.0
_POLL_S = 0.001


def new_mark() -> str:
    """Returns a unique mark for a command of this process: its pid and a random word."""
    return f"{os.getpid()}-{secrets.token_hex(8)}"


def end_commands_of(worker: int) -> bool:
    """Kills a dead worker's processes if no launcher of it runs; returns whether none was left.

    A launcher ends its command by itself. Processes that are left without one are killed.
    """
    prefix = f"{worker}-"
    left = [one for one in psutil.process_iter() if (_mark_of(one) or "").startswith(prefix)]
    if not any(map(_is_launcher, left)):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
    return not left


def kill_orphans(mark: str) -> list[int]:
    """Kill every process with the mark in its environment, in up to 10 scans; return the pids."""
    killed: list[int] = []
    for _ in range(10):
        found = [process for process in psutil.process_iter() if _carries(process, mark)]
        if not found:
            break
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
                killed.append(process.pid)
        psutil.wait_procs(found, timeout=1)
    return killed


def _carries(process: psutil.Process, mark: str) -> bool:
    return process.pid != os.getpid() and _mark_of(process) == mark


def _mark_of(process: psutil.Process) -> str | None:
    """The mark of a process that runs; None without one, and if its environment is unreadable."""
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return process.environ().get(MARK) if alive else None
    except (psutil.Error, OSError):
        return None


def _is_launcher(process: psutil.Process) -> bool:
    try:
        return launcher.__file__ in process.cmdline()
    except psutil.Error:
        return False


@contextmanager
def no_fork() -> Iterator[None]:
    """Hold back forks of this process during a `with` block, which should only start a program."""
    with _guard:
        yield


def open_here(path: Path) -> int:
    """Open or create a file to lock; return its descriptor, which forks of this process lack."""
    with _guard:
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _opened.add(opened)
    return opened


def close_here(opened: int) -> None:
    """Unregister and close a descriptor that `open_here` returned."""
    with _guard:
        _opened.discard(opened)
        os.close(opened)


def _drop_in_child() -> None:
    for opened in _opened:
        os.close(opened)
    _opened.clear()
    _guard.release()


os.register_at_fork(
    before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_drop_in_child
)


def stop_and_decide(pid: int, ends: Callable[[], bool]) -> bool:
    """Stops a child process; kills it if `ends` is then true, else continues it; whether it ended.

    Returns whether it has ended. `ends` is not called for a child that has ended already.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        # Looked at before the first signal: the number may be that of another process by now.
        return _exited(os.P_PIDFD, descriptor) or _killed(descriptor, ends)
    except ProcessLookupError:
        return True
    finally:
        os.close(descriptor)


def has_ended(pid: int) -> bool:
    """Whether a child process has ended, reaped or not."""
    return _exited(os.P_PID, pid)


def _killed(descriptor: int, ends: Callable[[], bool]) -> bool:
    signal.pidfd_send_signal(descriptor, signal.SIGSTOP)
    until = time.monotonic() + _PATIENCE_S
    while not _is_stopped(descriptor):
        if _exited(os.P_PIDFD, descriptor):
            return True
        if time.monotonic() > until:  # it waits for a device; the next round tries again
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
            return False
        time.sleep(_POLL_S)
    if not ends():
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
        return False
    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    until = time.monotonic() + _PATIENCE_S
    while not _exited(os.P_PIDFD, descriptor) and time.monotonic() < until:
        time.sleep(_POLL_S)
    return True


def _exited(kind: int, number: int) -> bool:
    """Whether a child process has ended; it is left for its parent's own wait."""
    try:
        return os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def _is_stopped(descriptor: int) -> bool:
    try:
        found = os.waitid(os.P_PIDFD, descriptor, os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return found is not None
