"""Formats statistics as tables (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import date

from leadhand.cli.render.tables import plural, table
from leadhand.models.views.statistics import StatisticsView


def statistics_lines(view: StatisticsView) -> Iterator[str]:
    """Formats the statistics of a period as tables with titles, without empty ones."""
    days = (date.fromisoformat(view.last) - date.fromisoformat(view.first)).days + 1
    if not view.days:
        yield f"nothing ended in the last {plural(days, 'day')}"
        return
    yield _head(view)
    for title, lines in (
        ("ENDS OF SESSIONS", _sessions(view)),
        ("ACCEPTED LOOPS", _acceptance(view)),
        ("CHECKERS", _checks(view)),
        ("USED BY AGENTS", _usage(view)),
    ):
        if len(lines) > 1:
            yield ""
            yield title
            yield from lines


def _head(view: StatisticsView) -> str:
    ended = sum(row.count for row in view.sessions)
    completed = sum(row.count for row in view.sessions if row.status == "completed")
    text = f"{view.first} to {view.last} (UTC): {plural(ended, 'session')} ended"
    text += f", {completed} completed ({share(completed, ended)})" if ended else ""
    if view.cost_per_completed_usd:
        text += f", {view.cost_per_completed_usd:.4f} USD for each"
    return text


def _sessions(view: StatisticsView) -> list[str]:
    rows = [
        [row.kind, row.name, row.status, row.reason, row.count, _mean(row.seconds, row.count)]
        for row in sorted(view.sessions, key=lambda row: -row.count)
    ]
    return table(["KIND", "NAME", "STATUS", "REASON", "SESSIONS", "MEAN"], rows)


def _acceptance(view: StatisticsView) -> list[str]:
    rows = [
        [row.agent, row.iteration, row.reached, row.accepted, share(row.accepted, row.reached)]
        for row in view.acceptance
    ]
    return table(["AGENT", "ITERATION", "REACHED", "ACCEPTED", "SHARE"], rows)


def _checks(view: StatisticsView) -> list[str]:
    totals: defaultdict[str, int] = defaultdict(int)
    for row in view.checks:
        totals[row.checker] += row.count
    rows = [
        [row.checker, row.verdict, row.count, share(row.count, totals[row.checker]),
         _mean(row.seconds, row.count)]
        for row in view.checks
    ]  # fmt: skip
    return table(["CHECKER", "VERDICT", "CHECKS", "SHARE", "MEAN"], rows)


def _usage(view: StatisticsView) -> list[str]:
    rows = [
        [row.agent, row.kind, f"{row.cost_usd:.4f}", row.input_tokens, row.output_tokens]
        for row in view.usage
    ]
    return table(["AGENT", "KIND", "USD", "TOKENS IN", "TOKENS OUT"], rows)


def share(part: int, whole: int) -> str:
    """Formats `part` divided by `whole` in percent, without decimals.

    >>> share(2, 3)
    '67 %'
    """
    return f"{100 * part / whole:.0f} %"


def _mean(seconds: float, count: int) -> str:
    mean = seconds / count
    return f"{mean:.1f} s" if mean < 100 else f"{mean / 60:.0f} min"
