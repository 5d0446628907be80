"""Ctrl-C while a command waits, and a reader that closes its end of a pipe."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.scripted_api import Script
from tests.unit.leadhand.cli.test_workflow_files import THREE_PHASES
from tests.waiting import wait_until


@pytest.fixture
def started(script: Script) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a command in a process of its own, with an interpreter that obeys Ctrl-C."""
    processes = []

    def started(*arguments: str) -> subprocess.Popen[str]:
        program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        program += "from leadhand.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, *arguments],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def interrupted(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    return process.returncode, first + out, err


def test_ctrl_c_stops_the_session_and_says_how_to_resume_it(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    script.ends = False
    code, _, err = interrupted(started("spawn", "t", "--checker", "a"))
    assert code == 2
    assert [verb for _, verb, _ in script.controls] == ["stop"]
    assert "session 00000000 is stopped; continue with: leadhand resume 00000000" in err
    assert "Traceback" not in err


def test_ctrl_c_in_a_workflow_file_stops_its_session(
    script: Script, started: Callable[..., subprocess.Popen[str]], elsewhere: Path
) -> None:
    (elsewhere / "tdd.py").write_text(THREE_PHASES)
    script.ends = False
    code, _, err = interrupted(started("workflow", "tdd.py"))
    assert code == 2
    assert [verb for _, verb, _ in script.controls] == ["stop"]
    assert "Traceback" not in err


def test_a_second_ctrl_c_aborts(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    script.ends = False
    script.stops = False
    process = started("spawn", "t", "--checker", "a")
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    wait_until(lambda: script.controls)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 2
    assert [verb for _, verb, _ in script.controls] == ["stop", "abort"]
    assert "session 00000000 is aborted" in err


def test_ctrl_c_in_watch_leaves_the_session_running(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    script.add("1a2b3c4d", "active")
    code, _, err = interrupted(started("watch", "1a2b3c4d"))
    assert (code, script.controls) == (2, [])
    assert "continues; stop it with: leadhand stop 1a2b3c4d" in err


def test_closed_output_pipe_is_no_error(
    script: Script, started: Callable[..., subprocess.Popen[str]]
) -> None:
    for n in range(3000):
        script.add(f"{n:08x}", "completed", name="a name of some length")
    process = started("ls")
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    assert process.communicate(timeout=20)[1] == ""
