"""Commands that follow a session leave it running when a signal ends them, and say so."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from tests.processes import handles_sigterm
from tests.scripted_api import TOKEN, Script, scripted_api
from tests.waiting import wait_until

Started = Callable[..., subprocess.Popen[str]]
SESSION = "1a2b3c4d"
FOLLOWS = f"follow it with: leadhand watch {SESSION}"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    with scripted_api() as (url, script):
        monkeypatch.setenv("LEADHAND_URL", url)
        monkeypatch.setenv("LEADHAND_TOKEN", TOKEN)
        script.add(SESSION, "active")
        script.stops = False
        yield script


@pytest.fixture
def started(script: Script) -> Iterator[Started]:
    """Start a command, and wait until a signal finds it waiting."""
    processes = []

    def started(*arguments: str) -> subprocess.Popen[str]:
        program = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
        program += "from leadhand.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", program, *arguments, SESSION],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        processes.append(process)
        wait_until(lambda: handles_sigterm(process.pid), timeout=60)
        return process

    yield started
    for process in processes:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str], number: signal.Signals) -> tuple[int, str]:
    """The exit code, and the last line that the command writes when the signal ends it."""
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    return process.returncode, err.splitlines()[-1]


FOLLOWING = ["watch", "logs -f", "logs -o", "logs -f --json", "transcript -f"]


@pytest.mark.parametrize("command", ["wait", *FOLLOWING])
def test_sigterm_says_that_the_session_continues(started: Started, command: str) -> None:
    said = ended(started(*command.split()), signal.SIGTERM)
    assert said == (2, f"leadhand: session {SESSION} continues; {FOLLOWS}")


@pytest.mark.parametrize("command", FOLLOWING)
def test_ctrl_c_says_that_the_session_continues(
    script: Script, started: Started, command: str
) -> None:
    said = ended(started(*command.split()), signal.SIGINT)
    stop = f"stop it with: leadhand stop {SESSION}"
    assert said == (2, f"leadhand: session {SESSION} continues; {stop}")
    assert script.controls == []


def test_sigterm_while_a_stop_is_awaited_says_that_it_is_under_way(started: Started) -> None:
    said = ended(started("stop"), signal.SIGTERM)
    assert said == (2, f"leadhand: session {SESSION} is being stopped; {FOLLOWS}")
