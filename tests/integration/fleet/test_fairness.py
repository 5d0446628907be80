"""Whose turn it is: small sessions are not behind large ones, and what is urgent goes first.

The agents themselves write down who worked after whom; nothing is measured by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.core.program import Action, Program, Step
from app.sessions.submit import About
from app.settings import Settings
from tests.fleet import Fleet

#: So many hints of one session may stand before those of others.
WINDOW = Settings().window


@pytest.fixture
def fleet(tmp_path: Path, store_url: str, broker_url: str) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, store_url, broker_url, lease_s=5)
    yield fleet
    fleet.close()


def quick(fleet: Fleet, name: str, steps: int, *, priority: int = 5) -> str:
    """A session of so many agent steps that could all run at once; each signs a list."""
    command = f"echo {name} >> {fleet.folder / 'list'}"
    step = Step(
        id="ask", action=Action.AGENT, for_each=tuple(range(steps)),
        inputs={"task": "sign", "doer": {"command": command}},
    )  # fmt: skip
    program = Program(name=name, body=(step,))
    about = About(kind="loop", name=name, priority=priority)
    return fleet.engine.submit.program(program, about).session


def signed(fleet: Fleet) -> list[str]:
    """Who worked, in that order."""
    return (fleet.folder / "list").read_text().split()


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_a_small_session_is_not_behind_large_ones(fleet: Fleet) -> None:
    large = [quick(fleet, "large", 500) for _ in range(3)]
    small = quick(fleet, "small", 5)
    for name in ("one", "two"):
        fleet.worker(name)
    assert fleet.ended(small, timeout=60).status == "completed"
    order = signed(fleet)
    # One window of each stood before it, and what was then added stood behind it.
    before = order.index("small")
    assert before <= 3 * WINDOW + 8, before
    until = len(order) - order[::-1].index("small")
    assert until <= 4 * 3 * WINDOW, until
    assert {fleet.engine.queries.session(one).status for one in large} == {"active"}
    assert order.count("small") == 5
    # The large ones share alike: none has had to wait for another's end.
    done = [fleet.engine.queries.session(one).counters.steps for one in large]
    assert max(done) - min(done) <= 2 * WINDOW, done
    for one in large:
        fleet.engine.control.apply(one, "abort")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_what_is_urgent_goes_first(fleet: Fleet) -> None:
    steps = WINDOW + 4
    sessions = [
        quick(fleet, name, steps, priority=priority)
        for name, priority in (("low", 9), ("normal", 5), ("high", 0))
    ]
    fleet.worker("one", LEADHAND_CONCURRENCY="1")
    assert {fleet.ended(one, timeout=60).status for one in sessions} == {"completed"}
    assert signed(fleet) == ["high"] * steps + ["normal"] * steps + ["low"] * steps
