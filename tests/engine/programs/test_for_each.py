"""Fan-out of for_each nodes."""

from __future__ import annotations

import pytest

from tests.engine.driving import (
    Bench,
    loop,
    program,
    step,
)


def test_for_each_takes_its_width_from_the_step_before(bench: Bench):
    drive = bench.start(program(step("list"), step("fetch", for_each="${list}"), step("after")))
    drive.do("list", expand={"fetch": ['"x"', '"y"', '"z"']})
    assert drive.live == {"fetch~1#1", "fetch~1#2", "fetch~1#3"}
    assert bench.store.values(drive.ref, "items", ["fetch#2"]) == {"fetch#2": '"y"'}
    drive.do("fetch~1#3")
    drive.do("fetch~1#1")
    assert [hint.address for hint in drive.do("fetch~1#2").hints] == ["after"]
    drive.do("after")
    drive.ended_well()


@pytest.mark.parametrize("width", [0, None])
def test_for_each_over_nothing_is_full_at_once(bench: Bench, width: int | None):
    drive = bench.start(program(step("list"), step("fetch", for_each="${list}"), step("after")))
    drive.do("list", expand=None if width is None else {"fetch": []})
    assert drive.live == {"after"}
    drive.do("after")
    drive.ended_well()


def test_for_each_over_a_written_list_needs_nobody_to_write_its_width(bench: Bench):
    drive = bench.start(program(step("fetch", for_each=(1, 2)), step("none", for_each=())))
    assert drive.live == {"fetch~1#1", "fetch~1#2"}
    drive.do("fetch~1#2")
    assert drive.do("fetch~1#1").ended == "completed"
    drive.ended_well()


def test_for_each_in_a_loop_has_a_width_of_its_own_in_each_iteration(bench: Bench):
    body = (step("list"), step("fetch", for_each="${list}"), step("j", "judge"))
    drive = bench.start(program(loop("l", *body)))
    drive.do("l~1[1]/list", expand={"fetch": ["1", "2"]})
    drive.do("l~1[1]/fetch~1#1")
    drive.do("l~1[1]/fetch~1#2")
    drive.do("l~1[1]/j", verdict="retry")
    drive.do("l~1[2]/list", expand={"fetch": ["1"]})
    assert drive.live == {"l~1[2]/fetch~1#1"}
    drive.do("l~1[2]/fetch~1#1")
    drive.do("l~1[2]/j", verdict="accept")
    drive.ended_well()


def test_for_each_of_a_thousand_goes_through_the_window(bench: Bench):
    wide = step("w", for_each=tuple(range(1000)))
    drive = bench.start(program(wide, step("after")), window=7)
    done = 0
    assert len(drive.hinted) == 7
    while drive.hinted and done < 1000:
        address = drive.hinted.pop(0)
        grant = drive.take(address)
        assert len(drive.members("hinted")) <= 7
        drive.settle(grant)
        done += 1
    assert drive.hinted == ["after"]
    drive.do("after")
    assert drive.counters()["steps"] == 1001
    drive.ended_well()


def test_item_that_fails_fails_its_for_each_when_critical(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2, 3)), step("after")))
    other = drive.take("w~1#2")
    drive.do("w~1#1", "failed")
    assert drive.state("w~1#3") == "cancelled"
    assert drive.beat(other).word == "cancel"
    assert drive.settle(other).ended == "failed"
    drive.ended_well("failed")


def test_item_that_fails_is_passed_over_when_not_critical(bench: Bench):
    drive = bench.start(program(step("w", for_each=(1, 2), critical=False), step("after")))
    drive.do("w~1#1", "failed")
    drive.do("w~1#2")
    assert drive.live == {"after"}
    assert drive.warnings() == ["w (w~1#1) failed and was passed over"]
    drive.do("after")
    drive.ended_well()
