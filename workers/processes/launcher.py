"""The parent process of one command: starts it, waits for it, and kills its whole process tree.

A standalone script (`python -I -S launcher.py ...`), one process per command, because it forks and
adopts the command's orphans (`PR_SET_CHILD_SUBREAPER`), so that a grandchild which called setsid is
found. Neither is safe inside a worker with threads.

It ends the tree, with SIGTERM and after a grace period with SIGKILL, when the command ends or when
the lifeline closes. The lifeline is a pipe whose writing end only the worker holds, so the tree
ends with a worker that is killed. A frozen worker closes nothing, so the attempt's lease limits the
tree too: at UNTIL, a time of CLOCK_MONOTONIC, the tree gets SIGKILL. The worker writes a later time
to the lifeline, a line each, when it renews the lease. That clock stops while the machine is
suspended.

If this process is killed, the kernel kills the command (`PR_SET_PDEATHSIG`), and the worker looks
for orphans.

It writes lines to the status pipe: `refused cwd|exec ERRNO`, `exit CODE`, `signal NUMBER`, and
`lease` if the lease expired first. Its exit code is 0 if no process of the tree is left.
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
#: Seconds that killed processes get to end; one that is blocked in the kernel may take longer.
_KILL_S = 5.0
_STEP_S = 0.02


def main(arguments: list[str]) -> int:
    """Run a command for a worker; end it if the worker dies or the time is over."""
    status, grace_s = int(arguments[1]), float(arguments[2])
    lifeline = Lifeline(int(arguments[0]), until=float(arguments[3]))
    os.set_inheritable(status, False)
    lifeline.read()
    if lifeline.closed:  # the worker died while this process started
        return 0
    if lifeline.is_over():
        _say(status, "lease")
        return 0
    if LINUX:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    wake = _wake_on_signals()
    parent = os.getpid()
    command = os.fork()
    if command == 0:
        _become(arguments[5:], cwd=arguments[4], parent=parent, status=status)
    _wait(command, lifeline=lifeline, wake=wake, status=status)
    none_left = _end_tree(command, grace_s=grace_s, lifeline=lifeline, status=status)
    return 0 if none_left else 1


class Lifeline:
    """The pipe from the worker: its lines renew the lease, and its end ends the tree."""

    def __init__(self, number: int, *, until: float) -> None:
        self.number = number
        self.until = until
        self.closed = False
        self._line = b""
        os.set_inheritable(number, False)
        os.set_blocking(number, False)

    def read(self) -> None:
        """Read the lease's new end from the worker's pipe, if any, and note a closed pipe."""
        while not self.closed:
            try:
                chunk = os.read(self.number, 4096)
            except BlockingIOError:
                return
            self.closed = not chunk
            *lines, self._line = (self._line + chunk).split(b"\n")
            if lines:
                self.until = float(lines[-1])

    def is_over(self) -> bool:
        """Whether the lease has expired."""
        return time.monotonic() >= self.until

    def left_s(self) -> float | None:
        """Return the seconds until the lease expires; None without a lease."""
        return None if self.until == float("inf") else max(0.0, self.until - time.monotonic())


def descendants(root: int) -> list[int]:
    """Returns the pids of all descendants of a process, from /proc."""
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
            if os.getppid() != parent:  # it died before PR_SET_PDEATHSIG was set
                os._exit(127)
        os.setsid()
        # A worker may ignore signals that a command expects at their default.
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.chdir(cwd)
        step = "exec"
        os.execvp(argv[0], argv)  # noqa: S606 - running a given command is its whole purpose
    except OSError as error:
        os.write(status, f"refused {step} {error.errno}\n".encode())
    finally:
        os._exit(127)


def _wake_on_signals() -> int:
    """Make a pipe that becomes readable when a child ends or a signal asks for the end."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda _number, _frame: None)
    return reading


def _wait(command: int, *, lifeline: Lifeline, wake: int, status: int) -> None:
    """Wait until the command, the lifeline or the lease ends, or a signal asks for the end."""
    while True:
        readable, _, _ = select.select([lifeline.number, wake], [], [], lifeline.left_s())
        lifeline.read()
        asked = lifeline.closed
        if wake in readable:
            asked = asked or any(number != signal.SIGCHLD for number in os.read(wake, 4096))
        ended, _ = _reap(command, status=status)
        if not ended and lifeline.is_over():
            _say(status, "lease")
            return
        if ended or asked:
            return


def _reap(command: int, *, status: int) -> tuple[bool, bool]:
    """Reap ended children; return whether the command ended, and whether no child is left."""
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
        return  # the worker is gone


def _end_tree(command: int, *, grace_s: float, lifeline: Lifeline, status: int) -> bool:
    """Terminate the rest of the tree, and kill it after the grace period or the lease.

    Return whether no process is left. This process may be frozen for any time here, so it kills at
    least once before it gives up.
    """
    grace_ends = time.monotonic() + grace_s
    _, none_left = _reap(command, status=status)
    if not none_left and time.monotonic() < min(grace_ends, lifeline.until):
        _signal_tree(command, signal.SIGTERM)
        _signal_tree(command, signal.SIGCONT)  # a stopped process handles no other signal
    while not none_left and time.monotonic() < min(grace_ends, lifeline.until):
        time.sleep(_STEP_S)
        lifeline.read()  # the worker may renew the lease meanwhile
        _, none_left = _reap(command, status=status)
    give_up_at = time.monotonic() + _KILL_S
    while not none_left:
        _signal_tree(command, signal.SIGKILL)
        time.sleep(_STEP_S)
        _, none_left = _reap(command, status=status)
        if time.monotonic() >= give_up_at:
            break
    if not LINUX:
        _signal_tree(command, signal.SIGKILL)  # orphans are not adopted there, but keep their group
    return none_left


def _signal_tree(command: int, number: int) -> None:
    for pid in descendants(os.getpid()) if LINUX else [-command]:
        try:
            if number == signal.SIGKILL and pid > 0 and os.getpgid(pid) == pid:
                os.killpg(pid, number)  # a whole group at once, so that no fork escapes
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
    # As in leadhand.process_guard, which a script under `-I -S` cannot import.
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
