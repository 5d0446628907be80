"""Bars of the charts of economics."""

from __future__ import annotations

from api.dashboard.charts import HEIGHT, Share, cost_by_day, ends_by_day, share_by_iteration
from leadhand.models.views.fleet import DayCount, StatisticsView

DAYS = [
    DayCount(day="2026-11-01", ended={"completed": 3, "failed": 1, "aborted": 1}, cost_usd=0.5),
    DayCount(day="2026-11-03", ended={"completed": 1}, cost_usd=0.25),
]
VIEW = StatisticsView(first="2026-11-01", last="2026-11-03", days=DAYS)


def test_a_day_without_ends_has_its_place() -> None:
    parts = ends_by_day(VIEW)
    assert [(part.tone, part.text) for part in parts] == [
        ("good", "2026-11-01: 3 completed"),
        ("bad", "2026-11-01: 1 failed"),
        ("rest", "2026-11-01: 1 aborted"),
        ("good", "2026-11-03: 1 completed"),
    ]
    assert sum(part.height for part in parts[:3]) == HEIGHT
    assert parts[3].height == HEIGHT / 5
    assert parts[3].x > 2 * parts[0].width


def test_costs_have_the_height_of_their_amount() -> None:
    first, without, last = cost_by_day(VIEW)
    assert (first.height, without.height, last.height) == (HEIGHT, 0, HEIGHT / 2)
    assert last.text == "2026-11-03: $0.25"


def test_a_full_bar_is_an_iteration_in_which_all_were_accepted() -> None:
    half, whole = share_by_iteration([Share(1, 4, 2), Share(2, 2, 2)])
    assert (half.height, whole.height) == (HEIGHT / 2, HEIGHT)
    assert half.text == "iteration 1: 2 of 4 accepted"


def test_charts_of_no_day_are_empty() -> None:
    empty = StatisticsView(first="2026-11-01", last="2026-11-01")
    assert ends_by_day(empty) == []
    assert share_by_iteration([]) == []
