"""Whether the worker that owns an attempt has ended, asked of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from tests.waiting import wait_until
from workers.host.pool import is_gone


@pytest.fixture
def zombie() -> Iterator[int]:
    """A process that has ended and that its parent, this one, has not reaped."""
    process = subprocess.Popen([sys.executable, "-I", "-S", "-c", ""])
    wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
    yield process.pid
    process.wait()


def test_a_zombie_process_is_a_worker_that_has_ended(zombie: int) -> None:
    assert is_gone(f"embedded-1/{zombie}")


def test_a_running_process_is_a_worker_at_work() -> None:
    assert not is_gone(f"embedded-1/{os.getpid()}")


def test_a_reaped_process_is_a_worker_that_has_ended(zombie: int) -> None:
    os.waitpid(zombie, 0)
    assert is_gone(f"embedded-1/{zombie}")
