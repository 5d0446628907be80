"""A worker's name: only a process that can be seen is known to have ended."""

from __future__ import annotations

import subprocess
import time

import psutil
import pytest

from app.errors import WorkerNameTaken
from tests.silent_engine import silent_engine
from workers.host import join_fleet
from workers.host.join_fleet import Holder, NameLock


def lock_of(url: str) -> NameLock:
    lock = NameLock(silent_engine(url), "one")
    lock._ttl_ms = 1000
    return lock


def test_holder_in_another_pid_namespace_or_boot_is_not_known_to_have_ended() -> None:
    here = Holder.here()
    assert here.scope
    gone = here._replace(pid=2**22 + 1)
    assert gone.has_ended()
    assert not gone._replace(scope="other-boot:4026531836").has_ended()
    assert not gone._replace(scope="").has_ended()
    assert not gone._replace(host="elsewhere").has_ended()


def test_holder_of_an_earlier_version_is_not_known_to_have_ended() -> None:
    here = Holder.here()
    assert not Holder.of(f"{here.host}|{2**22 + 1}|7.0").has_ended()
    assert Holder.of(here.text) == here


def test_start_of_a_process_does_not_depend_on_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Holder.here()
    monkeypatch.setattr(psutil.Process, "create_time", lambda _: 1.0)
    assert not here.has_ended()


def test_ended_process_and_another_one_of_its_pid_have_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        holder = Holder.here()._replace(pid=process.pid, began=join_fleet._began(process.pid) or "")
        assert not holder.has_ended()
        assert holder._replace(began="1").has_ended()
        process.kill()
        while psutil.Process(process.pid).status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
        assert holder.has_ended()
    assert holder.has_ended()


def test_live_worker_in_another_pid_namespace_keeps_its_name(
    store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = lock_of(store_url)
    gone = Holder.here()._replace(scope="other", pid=2**22 + 1)
    first._holder = gone.text
    first.take()
    second = lock_of(store_url)
    monkeypatch.setattr(time, "sleep", lambda _: first.renew())
    with pytest.raises(WorkerNameTaken):
        second.take()


def test_name_of_an_ended_worker_of_another_pid_namespace_is_taken_at_its_deadline(
    store_url: str,
) -> None:
    first = lock_of(store_url)
    first._holder = Holder.here()._replace(scope="other", pid=2**22 + 1).text
    first.take()
    since = time.monotonic()
    lock_of(store_url).take()
    assert time.monotonic() - since > 0.5
