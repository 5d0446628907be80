"""Child processes that are stopped, looked at, and killed or continued."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from workers.processes.orphans import has_ended, stop_and_decide

#: Counts on its output, without end.
COUNTS = "import itertools, sys\nfor n in itertools.count(): print(n, flush=True)"


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen([sys.executable, "-c", COUNTS], stdout=subprocess.PIPE, text=True)
    yield process
    process.kill()
    process.communicate()


def state_of(pid: int) -> str:
    return str(psutil.Process(pid).status())


def test_child_is_stopped_while_it_is_decided_and_killed_if_so(child: subprocess.Popen[str]):
    states: list[str] = []

    def decide() -> bool:
        states.append(state_of(child.pid))
        return True

    assert stop_and_decide(child.pid, decide)
    assert states == [psutil.STATUS_STOPPED]
    assert has_ended(child.pid)
    assert child.wait(timeout=10) == -signal.SIGKILL  # its parent can still wait for it


def test_child_continues_if_it_is_not_to_end(child: subprocess.Popen[str]):
    assert child.stdout is not None
    assert not stop_and_decide(child.pid, lambda: False)
    assert not has_ended(child.pid)
    first, second = child.stdout.readline(), child.stdout.readline()
    assert int(second) == int(first) + 1


def test_child_that_has_ended_is_not_asked_about(child: subprocess.Popen[str]):
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert has_ended(child.pid)
    assert stop_and_decide(child.pid, lambda: pytest.fail("it was decided"))
    child.wait()
    assert has_ended(child.pid)
    assert stop_and_decide(child.pid, lambda: pytest.fail("it was decided"))


def test_process_of_another_parent_gets_no_signal():
    shell = [sys.executable, "-c", "import subprocess, sys\n"
             "p = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
             "print(p.pid, flush=True)\ninput()\np.communicate(b'x')"]  # fmt: skip
    with subprocess.Popen(shell, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        grandchild = int(one.stdout.readline())
        assert stop_and_decide(grandchild, lambda: pytest.fail("it was decided"))
        assert state_of(grandchild) != psutil.STATUS_STOPPED
        one.communicate("x\n")
