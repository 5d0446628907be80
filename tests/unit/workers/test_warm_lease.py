"""A warm process never outlives the lease of its call, and its launcher is woken seldom."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.waiting import wait_until
from workers.processes import lease_renewal, warm_pool
from workers.processes.lease_renewal import LAST_S, SPARE_S, WarmLease
from workers.processes.warm_pool import Call, Warm, Where

CODE = """
import os, pathlib, time

def number():
    return os.getpid()

def hang():
    pathlib.Path("hangs").touch()
    time.sleep(60)
"""
NEVER = float("inf")


class Launcher:
    """The reading end of a lifeline."""

    def __init__(self) -> None:
        self.number, self.lifeline = os.pipe()
        os.set_blocking(self.number, False)
        self.lease = WarmLease(self.lifeline)

    def told(self) -> list[float]:
        """The ends that were written since the last time."""
        try:
            return [float(line) for line in os.read(self.number, 4096).split()]
        except BlockingIOError:
            return []


@pytest.fixture
def launcher() -> Iterator[Launcher]:
    launcher = Launcher()
    yield launcher
    os.close(launcher.number)
    os.close(launcher.lifeline)


def test_the_first_end_is_told_and_a_later_one_only_when_it_is_near(launcher: Launcher) -> None:
    far, near = time.monotonic() + 1000, time.monotonic() + SPARE_S / 2
    launcher.lease.limit(far)
    launcher.lease.limit(far + 1)
    launcher.lease.rest_if_near()
    assert launcher.told() == [far]
    launcher.lease.limit(near)
    launcher.lease.limit(far)
    assert launcher.told() == [near, far]


def test_an_earlier_end_and_one_that_must_be_exact_are_told_at_once(launcher: Launcher) -> None:
    far = time.monotonic() + 1000
    launcher.lease.limit(far)
    launcher.lease.limit(far - 1)
    launcher.lease.limit(far, exactly=True)
    launcher.lease.limit(far, exactly=True)
    assert launcher.told() == [far, far - 1, far]


def test_one_that_rests_has_no_end(launcher: Launcher) -> None:
    launcher.lease.rest()
    assert launcher.told() == []
    launcher.lease.limit(time.monotonic() + SPARE_S / 2)
    launcher.lease.rest_if_near()
    assert launcher.told()[1:] == [NEVER]
    assert not launcher.lease.is_limited
    assert not launcher.lease.is_over


def test_one_that_may_have_been_killed_is_over(launcher: Launcher) -> None:
    launcher.lease.limit(time.monotonic() + LAST_S / 2)
    assert launcher.lease.is_over
    launcher.lease.limit(time.monotonic() + 1000)
    assert not launcher.lease.is_over


Ask = Callable[..., int]


@pytest.fixture
def warm() -> Iterator[Warm]:
    warm = Warm()
    yield warm
    warm.close()


@pytest.fixture
def ask(tmp_path: Path, warm: Warm) -> Ask:
    """Calls a function whose lease ends in so many seconds; returns the process's id."""
    (tmp_path / "asking.py").write_text(CODE)
    where = Where(tmp_path, {"PATH": os.environ["PATH"]})

    def ask(*, leased_s: float = 1000) -> int:
        until = time.monotonic() + leased_s
        call = Call("asking:number", {}, {}, where, lambda: until)
        answer = warm.call(call, timeout_s=30, cancel=threading.Event())
        assert isinstance(answer.value, int), answer
        return answer.value

    return ask


def test_calls_in_quick_succession_do_not_wake_the_launcher(ask: Ask) -> None:
    parent = psutil.Process(ask()).parent()
    assert parent is not None
    before = parent.num_ctx_switches().voluntary
    for _ in range(40):
        ask()
    assert parent.num_ctx_switches().voluntary - before < 20


def test_one_that_idles_soon_has_no_end(
    ask: Ask, warm: Warm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_pool, "REST_S", 0.01)
    number = ask()
    wait_until(lambda: not warm._idle[0].lease.is_limited, timeout=30)
    assert ask() == number


def test_one_whose_launcher_killed_it_is_not_asked(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease_renewal, "SPARE_S", 0.0)
    monkeypatch.setattr(warm_pool, "REST_S", 3600.0)
    number = ask(leased_s=2)
    wait_until(lambda: not psutil.pid_exists(number), timeout=30)
    assert ask() != number


def test_a_slow_call_is_limited_exactly(ask: Ask, warm: Warm, tmp_path: Path) -> None:
    ask(leased_s=1000)
    ends = [time.monotonic() + 1000.0]
    call = Call(
        "asking:hang", {}, {}, Where(tmp_path, {"PATH": os.environ["PATH"]}), lambda: ends[0]
    )
    cancel = threading.Event()
    process = warm.idle(call.where)
    assert process is not None
    known = process.lease.known
    slow = threading.Event()
    arguments = (call, time.monotonic() + 60, cancel, slow.set)
    reader = threading.Thread(target=process.call, args=arguments)
    reader.start()
    try:
        wait_until((tmp_path / "hangs").exists)
        assert known < ends[0]
        wait_until(lambda: process.lease.known == ends[0])
        wait_until(slow.is_set)
        ends[0] += 1
        wait_until(lambda: process.lease.known == ends[0])
    finally:
        cancel.set()
        reader.join()
        process.end()
