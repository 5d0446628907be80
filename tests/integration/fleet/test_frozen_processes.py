"""Processes of a worker that are frozen: no body works on after an acknowledged stop."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from leadhand.models.documents import LoopDocument
from leadhand.models.views.fleet import Running
from tests.fleet import Fleet
from tests.processes import runs, words
from tests.waiting import wait_until
from workers.processes import launcher

LEASE_S = 3.0
#: Writes its pid and the time, again and again, and does not end when it is asked to.
TICKING = """
import os, signal, sys, time
from pathlib import Path

def tick(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open("ticks", "a") as file:
        while not Path("enough").exists():
            file.write(f"{os.getpid()} {time.time()}\\n")
            file.flush()
            time.sleep(0.01)
    return True
"""
QUICK = """
import time
from pathlib import Path
import os

def tick(work):
    with open("ticks", "a") as file:
        while not Path("enough").exists():
            file.write(f"{os.getpid()} {time.time()}\\n")
            file.flush()
            time.sleep(0.01)
    return True
"""


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=LEASE_S)
    yield fleet
    fleet.close()


class Ticks:
    """What a body wrote."""

    def __init__(self, fleet: Fleet) -> None:
        self._file = fleet.folder / "ticks"

    def lines(self) -> list[str]:
        return self._file.read_text().splitlines() if self._file.exists() else []

    def body(self) -> psutil.Process:
        """The process that ticks."""
        wait_until(lambda: len(self.lines()) > 5, timeout=20)
        return psutil.Process(int(self.lines()[0].split()[0]))

    def after(self, time_s: float) -> list[str]:
        return [line for line in self.lines() if float(line.split()[1]) > time_s]


def running(fleet: Fleet) -> Running:
    """The one attempt that runs."""
    (worker,) = [one for one in fleet.engine.fleet.workers() if one.running]
    return worker.running[0]


def pool_pid(fleet: Fleet) -> int:
    return int(running(fleet).process.rpartition("/")[2])


def stop(fleet: Fleet, session: str) -> float:
    """Stop the session; the time when it was first seen stopped."""
    fleet.engine.control.apply(session, "stop")
    wait_until(lambda: fleet.engine.queries.session(session).status == "stopped", timeout=25)
    return time.time()


def frozen(pid: int) -> psutil.Process:
    process = psutil.Process(pid)
    process.suspend()
    wait_until(lambda: process.status() == psutil.STATUS_STOPPED)
    return process


def assert_quiet(ticks: Ticks, body: psutil.Process, stopped_at: float) -> None:
    assert not runs(body)
    assert ticks.after(stopped_at) == []


def finish(fleet: Fleet, session: str) -> None:
    """Resume the session, and let its body end at once."""
    (fleet.folder / "enough").touch()
    fleet.engine.control.apply(session, "resume")
    assert fleet.ended(session, timeout=30).status == "completed"


@pytest.mark.slow
@pytest.mark.timeout(90)
@pytest.mark.parametrize("who", ["pool process", "parent", "whole worker", "launcher"])
def test_no_body_ticks_after_an_acknowledged_stop(fleet: Fleet, who: str) -> None:
    worker = fleet.worker("one")
    ticks = Ticks(fleet)
    session = fleet.loop(fleet.script("doer.py", TICKING + "\ntick()\n"), "true")
    body = ticks.body()
    fleet.worker("two")  # sweeps, if the first one cannot
    pool = pool_pid(fleet)
    (parent,) = [one for one in body.parents() if launcher.__file__ in words(one)]
    pids = {
        "pool process": [pool],
        "parent": [worker.pid],
        "whole worker": [worker.pid, pool],
        "launcher": [parent.pid],
    }
    processes = [frozen(pid) for pid in pids[who]]

    stopped_at = stop(fleet, session)
    assert_quiet(ticks, body, stopped_at)

    for process in processes:
        if runs(process):
            process.resume()
    finish(fleet, session)
    assert worker.poll() is None


@pytest.mark.timeout(90)
def test_no_quick_function_ticks_after_an_acknowledged_stop(fleet: Fleet) -> None:
    fleet.worker("one", PYTHONPATH=str(fleet.folder))
    (fleet.folder / "judging.py").write_text(QUICK)
    checker = {"callable": "judging:tick", "quick": True, "timeout_s": 600}
    document = LoopDocument.model_validate(
        {
            "task": "t",
            "cwd": str(fleet.folder),
            "doer": {"command": "true"},
            "baseline": False,
            "checkers": [checker],
        }
    )
    session = fleet.engine.submit.document(document).session
    ticks = Ticks(fleet)
    body = ticks.body()
    pool = frozen(pool_pid(fleet))

    stopped_at = stop(fleet, session)
    assert_quiet(ticks, body, stopped_at)

    pool.resume()
    finish(fleet, session)


@pytest.mark.slow
@pytest.mark.timeout(90)
def test_worker_thawed_after_its_launcher_killed_the_body_records_no_failure(fleet: Fleet) -> None:
    """The launcher kills the body a little before the lease ends at the store."""
    fleet.worker("one")
    session = fleet.loop(fleet.script("doer.py", TICKING + "\ntick()\n"), "true")
    body = Ticks(fleet).body()
    pool = frozen(pool_pid(fleet))
    wait_until(lambda: not runs(body), timeout=20)
    (fleet.folder / "enough").touch()
    os.kill(pool.pid, signal.SIGCONT)

    result = fleet.ended(session, timeout=30)
    assert result.status == "completed"
    events = fleet.engine.queries.events(session, limit=1000)
    assert not [event for event in events if event.type == "step.retried"]
    assert [event for event in events if event.type == "step.expired"]
