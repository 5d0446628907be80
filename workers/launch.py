"""The parent of one command: it starts it, waits for it, and leaves nothing of its tree behind.

A script that stands alone (`python -I -S launch.py ...`), one process per command, because what it
does is not safe inside a worker with threads: it forks, and it adopts the command's orphans
(`PR_SET_CHILD_SUBREAPER`), so that a grandchild which called setsid is still found.

It ends the whole tree, with SIGTERM and after a grace with SIGKILL, when the command has ended or
when its lifeline does: the reading end of a pipe whose other end only the worker holds, so that
even a worker that was killed takes the tree with it. Should this process be killed, the kernel
kills the command (`PR_SET_PDEATHSIG`), and the worker looks for strays.

On the status pipe it says, a line each: `refused cwd|exec ERRNO`, `exit CODE`, `signal NUMBER`.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import time

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: What a worker may have set to be ignored and a command expects at its default.
_RESTORED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGCHLD", "SIGXFSZ", "SIGUSR1")
#: How long killed processes may take to go; one in the kernel's hands cannot be hurried.
_KILL_S = 5.0
_STEP_S = 0.02


def main(arguments: list[str]) -> int:
    """Carry out `LIFELINE STATUS GRACE_S CWD ARGV...`."""
    lifeline, status, grace_s = int(arguments[0]), int(arguments[1]), float(arguments[2])
    os.set_inheritable(lifeline, False)
    os.set_inheritable(status, False)
    if LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_signals()
    parent = os.getpid()
    command = os.fork()
    if command == 0:
        _become(arguments[4:], cwd=arguments[3], parent=parent, status=status)
    _wait(command, lifeline=lifeline, wake=wake, status=status)
    _end_tree(command, grace_s=grace_s, status=status)
    return 0


def descendants(root: int) -> list[int]:
    """Every process below `root`, as far as /proc tells."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would cost a third of the start
        if name.isdigit():
            children.setdefault(_parent_of(name), []).append(int(name))
    found: list[int] = []
    ahead = [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found += below
        ahead += below
    return found


def _become(argv: list[str], *, cwd: str, parent: int, status: int) -> None:
    """Turn the forked child into the command; never returns."""
    step = "cwd"
    try:
        if LINUX:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:  # it died before the kernel knew that we care
                os._exit(127)
        os.setsid()
        for name in _RESTORED:
            signal.signal(getattr(signal, name), signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(cwd)
        step = "exec"
        os.execvp(argv[0], argv)  # noqa: S606 - running what it is told is its whole purpose
    except OSError as error:
        os.write(status, f"refused {step} {error.errno}\n".encode())
    finally:
        os._exit(127)


def _wake_on_signals() -> int:
    """A pipe that becomes readable with every signal that matters here."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return reading


def _wait(command: int, *, lifeline: int, wake: int, status: int) -> None:
    """Return when the command has ended, the lifeline has, or somebody asks for the end."""
    while True:
        readable, _, _ = select.select([lifeline, wake], [], [])
        asked = lifeline in readable
        if wake in readable:
            asked = asked or any(number != signal.SIGCHLD for number in os.read(wake, 4096))
        ended, _ = _reap(command, status=status)
        if ended or asked:
            return


def _reap(command: int, *, status: int) -> tuple[bool, bool]:
    """Collect all who have ended, the adopted too; whether the command did, and nobody is left."""
    ended = False
    while True:
        try:
            pid, code = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            return ended, False
        if pid == command:
            ended = True
            code = os.waitstatus_to_exitcode(code)
            _say(status, f"exit {code}" if code >= 0 else f"signal {-code}")


def _say(status: int, line: str) -> None:
    try:
        os.write(status, f"{line}\n".encode())
    except BrokenPipeError:
        return  # the worker is gone, and nobody is left to tell


def _end_tree(command: int, *, grace_s: float, status: int) -> None:
    """Ask all that is left to end, and after the grace end it."""
    _, none_left = _reap(command, status=status)
    if not none_left:
        _tell_all(command, signal.SIGTERM)
        _tell_all(command, signal.SIGCONT)  # a stopped process hears nothing else
    kill_at = time.monotonic() + grace_s
    give_up_at = kill_at + _KILL_S
    while not none_left and time.monotonic() < give_up_at:
        if time.monotonic() >= kill_at:
            _tell_all(command, signal.SIGKILL)
        time.sleep(_STEP_S)
        _, none_left = _reap(command, status=status)
    if not LINUX:
        _tell_all(command, signal.SIGKILL)  # orphans are not ours there, but keep their group


def _tell_all(command: int, number: int) -> None:
    for pid in descendants(os.getpid()) if LINUX else [-command]:
        try:
            if number == signal.SIGKILL and pid > 0 and os.getpgid(pid) == pid:
                os.killpg(pid, number)  # a whole group at once, so that no fork slips through
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            continue


def _parent_of(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return -1


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
