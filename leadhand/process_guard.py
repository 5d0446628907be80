"""Kills a process, or a command with all its descendants, when its parent process dies.

A process calls `end_with_parent` and `hide` on itself. Run as ``python -P process_guard.py
PARENT_PID COMMAND...``, this file guards a command. It imports nothing of the package, to start
fast. On Linux the kernel reports the parent's death at once and reparents orphaned descendants to
this process, so that a new session or a double fork does not escape. Elsewhere the parent is polled
twice a second, and only visible descendants are killed.

TERM, INT, QUIT and HUP are forwarded to the command; USR2 kills the whole tree at once. When the
command ends, its remaining descendants are killed, and the guard exits with its exit code.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from types import FrameType

_SET_PDEATHSIG = 1
_SET_DUMPABLE = 4
_SET_CHILD_SUBREAPER = 36
#: Seconds between two polls of the parent; Linux sends a signal, too.
_LOOK_S = 5.0 if sys.platform == "linux" else 0.5
#: Seconds that killed descendants get to end; one that is blocked in the kernel is abandoned.
_VANISH_S = 10.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
#: The signal for the end of the parent, or of the thread in it that started this process.
_LOOK_NOW = signal.SIGUSR1
#: Kills the tree at once.
CUT = signal.SIGUSR2


def command() -> list[str]:
    """Returns the start of a command line; a command after it is killed when this process dies."""
    ignore = ("-E",) if sys.flags.ignore_environment else ()
    return [sys.executable, "-P", *ignore, __file__, str(os.getpid())]


def main(argv: list[str]) -> int:
    """Run a command, kill it with its descendants if the parent ends, and return its exit code."""
    hide()
    # Block these signals until the command can receive them, so that none is lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    guard = _Guard(parent=int(argv[0]))
    _prctl(_SET_CHILD_SUBREAPER, 1)
    _prctl(_SET_PDEATHSIG, _LOOK_NOW)
    if not guard.parent_lives():  # it died before the prctl call
        return 128 + CUT
    guard.child = _spawn(argv[1:])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    return guard.hold()


def hide() -> None:
    """Prevents other processes of this user from reading this process's memory and environment.

    Forks inherit this; programs that are executed do not.
    """
    _prctl(_SET_DUMPABLE, 0)


def end_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when its parent dies."""
    _prctl(_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the prctl call
        os.kill(os.getpid(), signal.SIGKILL)


class _Guard:
    """Guards one command: forwards signals, and kills its tree when it or the parent ends."""

    def __init__(self, parent: int) -> None:
        self.child = 0
        self._parent = parent
        self._code: int | None = None
        self._cut = False
        self._woken, wake = os.pipe()
        os.set_blocking(self._woken, False)
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, _LOOK_NOW, CUT, *_FORWARDED):
            signal.signal(number, self._on_signal)

    def parent_lives(self) -> bool:
        return os.getppid() == self._parent

    def hold(self) -> int:
        """Wait until the command or the parent ends; then kill all descendants."""
        while self._code is None and not self._cut and self.parent_lives():
            self._rest(_LOOK_S)
            self._reap()
        self._kill_tree()
        return 128 + CUT if self._code is None else self._code

    def _kill_tree(self) -> None:
        give_up = time.monotonic() + _VANISH_S
        while _kill_descendants() and time.monotonic() < give_up:
            self._rest(0.01)
            self._reap()

    def _rest(self, seconds: float) -> None:
        """Sleep until a signal comes; drain the wake-up pipe before its cause is handled."""
        select.select([self._woken], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _reap(self) -> None:
        """Reap ended children, including adopted orphans."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.child:
                    code = os.waitstatus_to_exitcode(status)
                    self._code = code if code >= 0 else 128 - code

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == CUT:
            self._cut = True
        elif number in _FORWARDED and self.child and self._code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, number)
                os.kill(self.child, signal.SIGCONT)  # one that is stopped could not end


def _spawn(command: list[str]) -> int:
    guard = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        # Python ignores SIGPIPE, a shell others, and exec keeps ignored and blocked signals.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        end_with_parent(guard)
        os.execvp(command[0], command)  # noqa: S606 - an argv, no shell
    except OSError as error:
        os.write(2, f"cannot run {command[0]!r}: {error.strerror}\n".encode())
    os._exit(127)


def _kill_descendants() -> bool:
    """Kill all descendants; return whether there were any."""
    import psutil  # imported late: only needed at the end

    descendants = psutil.Process().children(recursive=True)
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    return bool(descendants)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
