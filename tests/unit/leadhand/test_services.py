"""What keeps a service running: started again, ever later, and at once after it ran well."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from leadhand.local.errors import FolderUnfit
from leadhand.local.services import Program, RestartedService
from tests.waiting import wait_until


class Scripted:
    """A service that ends when it is told to, and starts unless its disk is full."""

    log = Path("none.log")

    def __init__(self) -> None:
        self.starts = 0
        self.runs = True
        self.disk_is_full = False

    def relaunch(self) -> None:
        if self.disk_is_full:
            raise FolderUnfit("/there", "the disk is full")
        self.starts += 1
        self.runs = True

    def has_ended(self) -> bool:
        return not self.runs

    def output(self) -> str:
        return ""

    def stop(self, is_urgent: Callable[[], bool]) -> None:
        self.runs = False


def test_service_that_runs_is_left_alone():
    kept = RestartedService("api", Scripted(), began_s=0)
    assert kept.check(1.0) is None


def test_service_that_ended_is_started_after_a_delay():
    service = Scripted()
    kept = RestartedService("api", service, began_s=0)
    service.runs = False
    assert kept.check(1.0) == "api has ended; it is restarted in 0.25 s"
    assert kept.check(1.2) is None
    assert kept.check(1.3) == "api is restarted"
    assert service.starts == 1


def test_each_end_in_a_row_waits_longer_up_to_a_limit():
    service = Scripted()
    kept, now_s = RestartedService("api", service, began_s=0), 0.0
    waited: list[float] = []
    for _ in range(9):
        service.runs = False
        kept.check(now_s)
        ended_s = now_s
        while not service.runs:
            now_s += 0.125
            kept.check(now_s)
        waited.append(now_s - ended_s)
    assert waited == [0.25, 0.5, 1, 2, 4, 8, 10, 10, 10]
    assert kept.ends_in_a_row == 9


def test_service_that_ran_well_begins_with_the_first_delay_again():
    service = Scripted()
    kept = RestartedService("api", service, began_s=0)
    for now_s in (0.0, 0.25, 40.0):
        service.runs = now_s == 0.25
        kept.check(now_s)
    assert kept.ends_in_a_row == 1


def test_service_that_cannot_be_started_is_tried_again():
    service = Scripted()
    kept = RestartedService("redis", service, began_s=0)
    service.runs, service.disk_is_full = False, True
    kept.check(0.0)
    assert "the disk is full" in str(kept.check(0.5))
    service.disk_is_full = False
    assert kept.check(1.5) == "redis is restarted"


def test_output_of_a_service_has_no_line_of_an_earlier_run(tmp_path: Path):
    command = ["sh", "-c", "test -e seen && echo second; touch seen"]
    service = Program("api", command, home=tmp_path, env=dict(os.environ), stop_s=1)
    service.log.parent.mkdir()
    service.log.write_text("its Redis cannot be used: it is a replica\n")
    for written in ("", "second"):
        service.relaunch()
        wait_until(service.has_ended)
        assert service.output() == written
