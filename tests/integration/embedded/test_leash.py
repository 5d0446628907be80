"""The leash with real processes: what is on it ends with who holds it, and only then."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from leadhand.local.processes import GuardedProcess
from tests.processes import runs
from tests.waiting import wait_until


def start(tmp_path: Path, *command: str) -> GuardedProcess:
    return GuardedProcess(command, cwd=tmp_path, log=tmp_path / "x.log")


def ended(leashed: GuardedProcess) -> int | None:
    wait_until(lambda: leashed.exit_code is not None)
    return leashed.exit_code


def test_exit_code_is_the_commands(tmp_path: Path):
    assert ended(start(tmp_path, "sh", "-c", "exit 7")) == 7


def test_death_by_a_signal_shows_in_the_exit_code(tmp_path: Path):
    assert ended(start(tmp_path, "sh", "-c", "kill -9 $$")) == 128 + signal.SIGKILL


def test_command_that_is_not_there_is_named_in_the_log(tmp_path: Path):
    assert ended(start(tmp_path, "no-such-command")) == 127
    assert "cannot run 'no-such-command'" in (tmp_path / "x.log").read_text()


def test_what_a_command_leaves_behind_is_killed(tmp_path: Path):
    """A daemon in the classic manner: a session of its own, and a parent that has ended."""
    leashed = start(
        tmp_path, "sh", "-c", "setsid sh -c 'echo $$ > pid; exec sleep 600' & sleep 0.3"
    )
    wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    daemon = psutil.Process(int((tmp_path / "pid").read_text()))
    assert ended(leashed) == 0
    assert not runs(daemon)


def test_command_that_does_not_want_to_end_is_cut(tmp_path: Path):
    leashed = start(tmp_path, "sh", "-c", "trap '' TERM; echo > up; while :; do sleep 1; done")
    wait_until((tmp_path / "up").exists)
    leashed.end(within_s=0.2)
    assert leashed.exit_code is not None


def test_command_may_end_in_order(tmp_path: Path):
    leashed = start(
        tmp_path,
        "sh",
        "-c",
        "trap 'echo > ended; exit 5' TERM; echo > up; while :; do sleep .05; done",
    )
    wait_until((tmp_path / "up").exists)
    leashed.end(within_s=10)
    assert (leashed.exit_code, (tmp_path / "ended").exists()) == (5, True)


def test_end_of_the_thread_that_started_it_is_not_the_end_of_the_process(tmp_path: Path):
    """The kernel signals the end of the thread just as that of the process."""
    started: list[GuardedProcess] = []
    thread = threading.Thread(
        target=lambda: started.append(start(tmp_path, "sh", "-c", "echo > up; sleep 600"))
    )
    thread.start()
    thread.join()
    wait_until((tmp_path / "up").exists)
    with pytest.raises(AssertionError):
        wait_until(lambda: started[0].exit_code, timeout=1)
    started[0].cut()


def test_leash_of_a_process_that_has_already_died_runs_nothing(tmp_path: Path):
    leash = Path(sys.modules["leadhand.process_guard"].__file__ or "")
    command = [sys.executable, "-P", str(leash), "1", "touch", str(tmp_path / "ran")]
    assert subprocess.run(command).returncode == 128 + signal.SIGUSR2
    assert not (tmp_path / "ran").exists()


def test_request_to_end_is_not_lost_while_the_command_starts(tmp_path: Path):
    """It came between the leash's start and its command's, which then ran on."""
    for number in range(30):
        leashed = start(tmp_path, "sleep", "600")
        moment = time.monotonic() + number * 0.003
        wait_until(partial(has_come, moment))
        leashed.ask_to_end()
        assert ended(leashed) in (-signal.SIGTERM, 128 + signal.SIGTERM)


def has_come(moment: float) -> bool:
    return time.monotonic() >= moment
