"""A benchmark that is killed leaves no process behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.processes import kill, runs, words
from tests.waiting import wait_until

#: The processes of each side that hold others or none: how many of them there are at least.
SIDES = {"leadhand.serve": 2, "benchmarks.plain": 2, "benchmarks.floor": 1}


@pytest.mark.timeout(90)
@pytest.mark.slow
def test_killed_benchmark_leaves_no_process_behind(tmp_path: Path) -> None:
    command = ["-P", "-m", "benchmarks", "--rounds", "3", "--no-many", "--no-processes"]
    bench = subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    family: list[psutil.Process] = []

    def all_sides_run() -> bool:
        family[:] = psutil.Process(bench.pid).children(recursive=True)
        lines = [words(process) for process in family]
        return all(sum(name in line for line in lines) >= n for name, n in SIDES.items())

    try:
        wait_until(all_sides_run, timeout=60)
        bench.kill()
        bench.wait()
        wait_until(lambda: not [one for one in family if runs(one)], timeout=15)
    finally:
        bench.kill()
        bench.wait()
        kill(family)
