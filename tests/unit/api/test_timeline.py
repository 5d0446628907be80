"""The timeline of a session: bars in the order of time, and idle spans squeezed."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from api.dashboard.timeline import SQUEEZED, WIDTH, timeline
from leadhand.models.views.step import StepView


def step(address: str, start: float | None, end: float | None = None) -> StepView:
    def moment(at: float | None) -> str | None:
        return None if at is None else datetime.fromtimestamp(at, UTC).isoformat()

    return StepView(
        address=address, node=address, action="agent", label=address,
        state="running" if end is None else "succeeded",
        started_at=moment(start), ended_at=moment(end),
    )  # fmt: skip


def test_night_between_two_steps_is_squeezed():
    night = 8 * 3600
    found = timeline([step("b", 100 + night, 200 + night), step("a", 0, 100)], now=1e6)
    assert [bar.step.address for bar in found.bars] == ["a", "b"]
    [idle] = found.idle
    assert idle.seconds == night
    half = (WIDTH - SQUEEZED) / 2
    assert [(bar.x, bar.width) for bar in found.bars] == [(0, half), (half + SQUEEZED, half)]


def test_running_step_lasts_until_now_and_one_that_waits_has_no_bar():
    found = timeline([step("a", 0), step("b", None)], now=30)
    [bar] = found.bars
    assert (bar.seconds, bar.has_ended, bar.width) == (30, False, WIDTH)


TIMES = st.tuples(st.integers(0, 10**6), st.integers(0, 10**4))


@given(st.lists(TIMES, max_size=30))
def test_bars_are_inside_and_in_the_order_of_time(spans):
    steps = [step(f"{n}", start, start + length) for n, (start, length) in enumerate(spans)]
    found = timeline(steps, now=2e6)
    assert len(found.bars) == len(spans)
    assert all(bar.x >= 0 and bar.x + bar.width <= WIDTH + 4 for bar in found.bars)
    begins = [bar.x for bar in found.bars]
    assert begins == sorted(begins)
