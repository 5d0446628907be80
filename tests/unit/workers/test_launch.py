"""The launcher of a command: it ends the tree even if it or its worker was frozen."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from leadhand import process_guard
from tests.processes import kill, runs
from tests.waiting import wait_until
from workers.attempt.heartbeat import PAST_DEADLINE_S
from workers.processes import launcher

#: Ignores SIGTERM, as does its child, which is in a session of its own; writes both pids.
STUBBORN = "trap '' TERM; setsid sh -c 'echo $$ >> pids; sleep 60' & echo $$ >> pids; wait; wait"
#: A launcher on a machine where signals have no effect.
POWERLESS = (
    "import os, runpy, sys; os.kill = os.killpg = lambda *_: None;"
    "sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
)

#: A program as a service may have been started: by nohup in a script, with blocked signals.
IGNORING = (
    "import os, signal, sys\n"
    "for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:\n"
    "    signal.signal(number, signal.SIG_IGN)\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2, signal.SIGALRM])\n"
    "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
)
SIGNALS = "grep -E '^Sig(Ign|Blk)' /proc/self/status > out; mv out signals"


class Launched:
    """A launcher, this end of its lifeline, and what it wrote to its status pipe."""

    def __init__(
        self, folder: Path, line: str, *, until: str, grace_s: float, within: tuple[str, ...]
    ) -> None:
        self.folder = folder
        reading, self.lifeline = os.pipe()
        self.status, writing = os.pipe()
        told = [str(reading), str(writing), str(grace_s), until, str(folder)]
        self.process = subprocess.Popen(
            [sys.executable, *within, launcher.__file__, *told, "/bin/sh", "-c", line],
            pass_fds=(reading, writing),
        )
        os.close(reading)
        os.close(writing)

    def family(self, count: int = 2) -> list[psutil.Process]:
        """The processes of the tree, once they have written their pids."""
        file = self.folder / "pids"
        wait_until(lambda: file.exists() and len(file.read_text().split()) == count)
        return [psutil.Process(int(pid)) for pid in file.read_text().split()]

    def freeze(self) -> None:
        self.process.send_signal(signal.SIGSTOP)
        state = psutil.Process(self.process.pid).status
        wait_until(lambda: state() == psutil.STATUS_STOPPED)

    def cut(self) -> None:
        os.close(self.lifeline)
        self.lifeline = -1

    def says(self) -> bytes:
        return os.read(self.status, 4096)

    def close(self) -> None:
        family = psutil.Process(self.process.pid).children(recursive=True)
        self.process.kill()
        self.process.wait()
        kill(family)
        os.close(self.status)
        if self.lifeline >= 0:
            self.cut()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[object]:
    launched: list[Launched] = []

    def start(
        line: str = STUBBORN,
        *,
        until: str = "inf",
        grace_s: float = 0.2,
        within: tuple[str, ...] = ("-I", "-S"),
    ) -> Launched:
        launched.append(Launched(tmp_path, line, until=until, grace_s=grace_s, within=within))
        return launched[-1]

    yield start
    for one in launched:
        if one.process.poll() is None:
            one.close()


def after(seconds: float) -> None:
    end = time.monotonic() + seconds
    wait_until(lambda: time.monotonic() > end, timeout=seconds + 5)


def test_launcher_whose_worker_died_before_it_began_starts_nothing(tmp_path: Path) -> None:
    lifeline, worker_end = os.pipe()
    os.close(worker_end)
    status, writing = os.pipe()
    options = [str(lifeline), str(writing), "60", "inf", str(tmp_path)]
    command = [sys.executable, "-I", "-S", launcher.__file__, *options, "/bin/true"]

    ended = subprocess.run(command, pass_fds=(lifeline, writing), timeout=30, check=False)
    for end in (lifeline, writing):
        os.close(end)
    assert (ended.returncode, os.read(status, 4096)) == (0, b"")  # no command has ended
    os.close(status)


@pytest.mark.slow
def test_launcher_frozen_past_its_deadline_kills_the_tree(start) -> None:
    launched = start()
    family = launched.family()
    launched.freeze()
    launched.cut()
    after(0.2 + launcher._KILL_S + 0.5)
    launched.process.send_signal(signal.SIGCONT)

    assert launched.process.wait(10) == 0
    assert not [process for process in family if runs(process)]


def test_launcher_frozen_in_its_grace_kills_the_tree(start) -> None:
    launched = start(grace_s=1.0)
    family = launched.family()
    launched.cut()
    # It has asked for the end: the shell's child that ignores nothing has gone.
    after(0.5)
    launched.freeze()
    after(0.5 + launcher._KILL_S + 0.5)
    launched.process.send_signal(signal.SIGCONT)

    assert launched.process.wait(10) == 0
    assert not [process for process in family if runs(process)]


@pytest.mark.slow
def test_launcher_that_cannot_kill_says_so_by_its_exit_code(start) -> None:
    launched = start(within=("-c", POWERLESS))
    family = launched.family()
    launched.cut()

    assert launched.process.wait(15) != 0
    kill([process for process in family if runs(process)])


def test_tree_is_killed_when_the_lease_ends_while_its_worker_writes_nothing(start) -> None:
    launched = start(until=repr(time.monotonic() + 1.0), grace_s=60.0)
    family = launched.family()

    assert launched.process.wait(10) == 0
    assert not [process for process in family if runs(process)]
    assert launched.says().startswith(b"lease\n")


def test_renewed_lease_lets_the_tree_run_on(start) -> None:
    launched = start("echo $$ >> pids; sleep 1.5; exit 7", until=repr(time.monotonic() + 0.7))
    os.write(
        launched.lifeline, f"{time.monotonic() + 0.8!r}\n{time.monotonic() + 60!r}\n0".encode()
    )

    assert launched.process.wait(10) == 0
    assert launched.says() == b"exit 7\n"


def test_command_does_not_start_once_its_lease_has_ended(start, tmp_path: Path) -> None:
    launched = start("echo $$ >> pids", until=repr(time.monotonic() - 0.1))

    assert launched.process.wait(10) == 0
    assert launched.says() == b"lease\n"
    assert not (tmp_path / "pids").exists()


def test_body_ends_before_the_store_gives_up_its_overdue_attempt() -> None:
    text = (Path(__file__).parents[3] / "app/store/lua/lib/attempts.lua").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("attempts.GRACE_MS")]
    assert int(line.split()[2]) / 1000 > PAST_DEADLINE_S


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_command_ignores_and_blocks_no_signal_whatever_its_worker_does(start, tmp_path) -> None:
    start(SIGNALS, within=("-c", IGNORING))
    assert signals_of(tmp_path) == {"SigIgn": 0, "SigBlk": 0}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_guarded_service_ignores_and_blocks_no_signal_of_its_shell(tmp_path: Path) -> None:
    guard = [process_guard.__file__, str(os.getpid())]
    command = [sys.executable, "-c", IGNORING, *guard, "/bin/sh", "-c", SIGNALS]
    subprocess.run(command, cwd=tmp_path, timeout=30, check=True)
    assert signals_of(tmp_path) == {"SigIgn": 0, "SigBlk": 0}


def signals_of(folder: Path) -> dict[str, int]:
    file = folder / "signals"
    wait_until(file.exists)
    pairs = (line.split(":") for line in file.read_text().splitlines())
    # Two signals are the C library's own: a process inherits them and cannot set them.
    settable = sum(1 << number - 1 for number in signal.valid_signals())
    return {name: int(mask, 16) & settable for name, mask in pairs}
