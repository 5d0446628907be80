"""The memory in which pool processes write down their inline calls."""

from __future__ import annotations

import os

import pytest

from workers.processes.warm_pool import MOST_BYTES, CallSlots


def test_call_is_seen_from_begin_to_end():
    slots = CallSlots()
    slot = slots.own()
    assert list(slots.running()) == []
    slot.begin(5, b"first")
    (call,) = slots.running()
    assert (call.pid, slots.text(call)) == (os.getpid(), b"first")
    assert call.limit - call.started == pytest.approx(5)
    assert slots.runs(call)
    assert slot.end() is False
    assert list(slots.running()) == []
    assert not slots.runs(call)


def test_call_is_not_taken_for_the_one_before_it():
    slots = CallSlots()
    slot = slots.own()
    slot.begin(5, b"first, and long")
    (first,) = slots.running()
    slot.end()
    slot.begin(5, b"second")
    (second,) = slots.running()
    assert not slots.runs(first)
    assert slots.text(second) == b"second"
    assert second.number != first.number


def test_new_time_limit_keeps_the_call_and_its_text():
    slots = CallSlots()
    slot = slots.own()
    slot.begin(60, b"imports")
    (before,) = slots.running()
    slots.hand_back(before)
    slot.restart(1)
    (after,) = slots.running()
    assert not slots.runs(before)
    assert (after.number, slots.text(after)) == (before.number, b"imports")
    assert after.limit < before.limit
    assert slot.end() is True


def test_process_that_replaces_a_killed_one_takes_the_other_slot():
    slots = CallSlots()
    killed = slots.own()
    killed.begin(5, b"killed")
    (call,) = slots.running()
    slots.own().begin(5, b"next")
    assert sorted(map(slots.text, slots.running())) == [b"killed", b"next"]
    slots.free(call)
    assert [*map(slots.text, slots.running())] == [b"next"]


def test_text_that_does_not_fit_is_refused():
    slots = CallSlots()
    with pytest.raises(ValueError, match=str(MOST_BYTES + 1)):
        slots.own().begin(5, b"x" * (MOST_BYTES + 1))
    assert list(slots.running()) == []
