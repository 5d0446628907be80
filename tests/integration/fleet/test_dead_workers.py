"""Steps of a dead embedded worker: run again once its body has ended, long before their lease."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from leadhand.models.documents import LoopDocument
from tests.fleet import Fleet
from tests.processes import kill, runs, words
from tests.waiting import wait_until
from workers.processes import launcher

#: Longer than the test: nothing here waits for a lease.
LEASE_S = 600.0
#: Writes its pid again and again, and ignores SIGTERM. The file `enough` ends it.
TICKING = """
import os, signal, time
from pathlib import Path

def tick(*_):
    while not Path("enough").exists():
        with open("ticks", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(0.01)
    return True
"""
DOER = "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\ntick()\n"


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    env = {"LEADHAND_OWN_REDIS": "1", "PYTHONPATH": str(tmp_path)}
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=LEASE_S, **env)
    yield fleet
    (tmp_path / "enough").touch()
    fleet.close()


def ticks(fleet: Fleet) -> list[int]:
    """The pid of the body that wrote each tick."""
    file = fleet.folder / "ticks"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def launcher_of(body: int) -> psutil.Process:
    (found,) = [one for one in psutil.Process(body).parents() if launcher.__file__ in words(one)]
    return found


@pytest.fixture
def stopped() -> Iterator[list[psutil.Process]]:
    """The launchers that a test stopped; none is left after it, even if it failed."""
    launchers: list[psutil.Process] = []
    yield launchers
    kill(launchers)


def frozen_launcher_of_a_dead_worker(fleet: Fleet, stopped: list[psutil.Process]) -> psutil.Process:
    """Kill the worker while its body runs; the launcher, stopped first, does not notice yet."""
    worker = fleet.worker("embedded-1")
    body = wait_until(lambda: ticks(fleet), timeout=30)[0]
    its_launcher = launcher_of(body)
    stopped.append(its_launcher)
    its_launcher.suspend()
    wait_until(lambda: its_launcher.status() == psutil.STATUS_STOPPED)
    fleet.kill(worker)
    return its_launcher


def bodies_in_order(fleet: Fleet) -> list[int]:
    """The pids of the bodies by their ticks, each once for each time that it took turns."""
    lines = ticks(fleet)
    return [pid for pid, before in zip(lines, [0, *lines], strict=False) if pid != before]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ["doer", "quick checker"])
@pytest.mark.slow
def test_body_of_a_dead_worker_has_ended_before_its_step_runs_again(
    fleet: Fleet, stopped: list[psutil.Process], kind: str
) -> None:
    (fleet.folder / "ticking.py").write_text(TICKING)
    doer = fleet.script("doer.py", TICKING + DOER)
    checker = {"callable": "ticking:tick", "quick": True, "timeout_s": 600}
    document = LoopDocument.model_validate({
        "task": "t",
        "cwd": str(fleet.folder),
        "doer": {"command": doer if kind == "doer" else "true"},
        "baseline": False, "checkers": ["true" if kind == "doer" else checker],
    })  # fmt: skip
    session = fleet.engine.submit.document(document).session
    its_launcher = frozen_launcher_of_a_dead_worker(fleet, stopped)

    fleet.worker("embedded-2")
    seen = len(ticks(fleet))
    wait_until(lambda: len(ticks(fleet)) > seen + 100, timeout=60)  # the old body works on
    assert len(set(ticks(fleet))) == 1
    its_launcher.resume()

    wait_until(lambda: len(set(ticks(fleet))) == 2, timeout=60)
    (fleet.folder / "enough").touch()
    assert fleet.ended(session, timeout=60).status == "completed"
    assert len(bodies_in_order(fleet)) == 2


@pytest.mark.timeout(120)
def test_body_that_lost_worker_and_launcher_is_killed_before_its_step_runs_again(
    fleet: Fleet, stopped: list[psutil.Process]
) -> None:
    """The kernel kills the shell with its launcher, but not the shell's child."""
    session = fleet.loop(fleet.script("doer.py", TICKING + DOER) + "; true", "true")
    its_launcher = frozen_launcher_of_a_dead_worker(fleet, stopped)
    body = psutil.Process(ticks(fleet)[0])
    kill([its_launcher])
    assert runs(body)

    fleet.worker("embedded-2")
    wait_until(lambda: len(set(ticks(fleet))) == 2, timeout=60)
    (fleet.folder / "enough").touch()
    assert fleet.ended(session, timeout=60).status == "completed"
    assert len(bodies_in_order(fleet)) == 2
