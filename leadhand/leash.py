"""Runs a command that dies, with all of its descendants, when the process that asked for it dies.

Run as ``python -P leash.py PARENT_PID COMMAND...``; it imports nothing of the package, because
every service pays for its start. Where the kernel can (Linux), it tells of the parent's death at
once and hands orphaned descendants to the leash, so none gets away by a new session or a double
fork; elsewhere the parent is looked at twice a second, and the descendants are those that show.

TERM, INT, QUIT and HUP go on to the command; USR2 kills the whole tree at once. When the command
ends, what it left behind is killed, and the leash ends with its exit code.
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
#: How often the parent is looked at where the kernel does not tell of its death.
_LOOK_S = 0.5
#: How long killed descendants may take to vanish; one that hangs in the kernel is left to it.
_VANISH_S = 10.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGHUP)
#: The kernel's word that the parent, or only the thread of it that started us, has ended.
_LOOK_NOW = signal.SIGUSR1
#: Kills the tree at once.
CUT = signal.SIGUSR2


def command() -> list[str]:
    """What to put before a command to tie it to this process."""
    ignore = ("-E",) if sys.flags.ignore_environment else ()
    return [sys.executable, "-P", *ignore, __file__, str(os.getpid())]


def main(argv: list[str]) -> int:
    """Run the command to its end, or to the parent's."""
    hide()
    # None of these is lost between two processes: each waits until the command can have it.
    signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
    leash = _Leash(parent=int(argv[0]))
    _tell_kernel(_SET_CHILD_SUBREAPER, 1)
    _tell_kernel(_SET_PDEATHSIG, _LOOK_NOW)
    if not leash.parent_lives():  # it died before the kernel was told
        return 128 + CUT
    leash.child = _spawn(argv[1:])
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
    return leash.hold()


def hide() -> None:
    """Let no other process of our user read what our environment holds."""
    _tell_kernel(_SET_DUMPABLE, 0)


class _Leash:
    """One command, and the signals that concern it."""

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
        """Wait for the command's end or the parent's; leave no descendant behind."""
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
        """Sleep until a signal comes; its byte is taken before the cause is looked at."""
        select.select([self._woken], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            os.read(self._woken, 4096)

    def _reap(self) -> None:
        """Take the exit codes of all that ended, adopted orphans too."""
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


def _spawn(command: list[str]) -> int:
    leash = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        # Python ignores SIGPIPE, and what is ignored or blocked stays so across exec.
        for number in (signal.SIGPIPE, *_FORWARDED):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
        _tell_kernel(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == leash:
            os.execvp(command[0], command)  # noqa: S606 - an argv, no shell
    except OSError as error:
        os.write(2, f"cannot run {command[0]!r}: {error.strerror}\n".encode())
    os._exit(127)


def _kill_descendants() -> bool:
    """Kill all that descend from here; True while there were any."""
    import psutil  # here, because only an end needs it

    descendants = psutil.Process().children(recursive=True)
    for descendant in descendants:
        with contextlib.suppress(psutil.Error):
            descendant.kill()
    return bool(descendants)


def _tell_kernel(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
