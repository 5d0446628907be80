"""An audit of a busy fleet: it disturbs no session, and it checks the queues too."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from kombu import pools

from app.sessions.submit import About
from leadhand.models.views.fleet import Finding
from tests.engine.world import LOOP
from tests.fleet import RUNS, Fleet


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=2)
    yield fleet
    fleet.close()


def audit(fleet: Fleet, *, repair: bool = False) -> list[Finding]:
    page = fleet.engine.audit.run(repair=repair)
    found = list(page.items)
    while page.next is not None:
        page = fleet.engine.audit.run(cursor=page.next, repair=repair)
        found += page.items
    return found


@pytest.mark.slow
def test_a_fleet_at_work_is_sound_and_goes_on(fleet: Fleet) -> None:
    fleet.worker("one")
    sessions = []
    for number in range(6):
        (fleet.folder / str(number)).mkdir()
        folder = str(fleet.folder / str(number // 2))  # two each wait for one folder
        sessions.append(fleet.loop("date >> log", '[ "$(wc -l < log)" -gt 2 ]', cwd=folder))
    looks = 0
    while any(fleet.engine.queries.session(session).status in RUNS for session in sessions):
        assert audit(fleet, repair=looks % 2 == 1) == []
        looks += 1
    assert looks > 3
    assert {fleet.ended(session).verdict for session in sessions} == {"accept"}
    assert audit(fleet) == []


def test_messages_for_nobody_are_found_and_dropped(fleet: Fleet) -> None:
    pools.reset()  # what this process declared before was lost when the server was emptied
    waits = fleet.loop("true", "true")
    there = fleet.engine.submit.program(LOOP, About("loop", "x", cwd="/f", place="far")).session
    ended = fleet.engine.submit.program(LOOP, About("loop", "x", cwd="/f", place="far")).session
    fleet.engine.control.apply(ended, "abort")
    arguments = (("00000000", "00000000", "do"), (waits, waits, "loop~1[1]/do"))
    for args in arguments:
        fleet.celery.send_task("leadhand.agent", args=args, queue="agents@far", priority=5)
    fleet.celery.send_task("other.task", args=["x"], queue="tools@others")
    here = "agents@local"
    found = {(f.kind, f.what, f.mended) for f in audit(fleet)}
    lost = (
        "3 messages in agents@far for deleted sessions, or for sessions that do not use this queue"
    )
    assert found == {
        ("message_stray", lost, False),
        ("queue_unconsumed", "1 message in agents@far, which no worker consumes", False),
        ("queue_unconsumed", f"1 message in {here}, which no worker consumes", False),
    }
    assert ("message_stray", lost, True) in {
        (f.kind, f.what, f.mended) for f in audit(fleet, repair=True)
    }
    assert fleet.engine.transitions._carrier.depths(["agents@far", here, "tools@others"]) == {
        "agents@far": 1, here: 1, "tools@others": 1,
    }  # fmt: skip
    fleet.worker("one")
    assert fleet.engine.queries.session(there).status == "active"
    assert fleet.ended(waits).verdict == "accept"
    # The worker's sweep sends the message of a step that is overdue once more.
    (found_now,) = audit(fleet)
    assert re.fullmatch(r"\d+ messages? in agents@far, which no worker consumes", found_now.what)
