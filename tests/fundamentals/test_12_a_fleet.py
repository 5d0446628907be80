"""Lesson 12: a fleet.

Several workers share one Redis and one API. Clients need two variables, `LEADHAND_URL` and
`LEADHAND_TOKEN`. A worker holds a step under a *lease* and extends it. When the worker dies, its
lease expires and another worker runs the step again. The result is recorded once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from leadhand import Client
from leadhand.loop import spawn_session
from tests.acceptance.fleet import TOKEN, Fleet
from tests.waiting import wait_until


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Redis, `leadhand api`, `leadhand worker --name one` and `leadhand worker --name two`."""
    fleet = Fleet(tmp_path)
    try:
        fleet.serve()
        fleet.server("worker", "--name", "two")
        yield fleet
    finally:
        fleet.close()


@pytest.mark.timeout(60)
def test_another_worker_takes_over_what_a_killed_one_was_doing(fleet: Fleet) -> None:
    with Client(fleet.url, TOKEN) as client:
        wait_until(lambda: {worker.name for worker in client.workers()} == {"one", "two"})
        session = spawn_session(
            "Survive",
            "true",
            doer="echo start >> starts; until test -e go; do sleep 0.05; done",
            cwd=fleet.folder,
            client=client,
        )
        wait_until(lambda: fleet.lines("starts"))

        (busy,) = wait_until(lambda: [worker for worker in client.workers() if worker.running])
        os.kill(busy.pid, signal.SIGKILL)
        wait_until(lambda: len(fleet.lines("starts")) == 2, timeout=20)
        (fleet.folder / "go").touch()

        result = client.wait(session)
        assert (result.verdict, result.iterations) == ("accept", 1)
        assert client.session(session).counters.attempts_lost == 1
        (entry,) = client.ledger(session).items
        assert entry.verdict == "accept"
