"""Statistics of a period: counts by kind, flow, agent, checker and reason, summed over its days."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

from app.domain.outcomes import MICROS
from app.store.statistics import StatisticsReads
from app.store.store import Store
from leadhand.models.views.statistics import (
    Acceptance,
    CheckCount,
    DayCount,
    LoopCount,
    SessionCount,
    StatisticsView,
    UsageCount,
)

#: Days that a request may span, and how long the counts are kept.
MOST_DAYS = 400
_EPOCH = date(1970, 1, 1)

Row = tuple[str | int, ...]
#: Counters of a row by name: n, ms, cost_micros, tokens_in, tokens_out.
Counters = Counter[str]


class _Counted(NamedTuple):
    counter: str
    row: Row
    by: int


class Statistics:
    """Reads what the transitions have counted."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def of(self, first: date, last: date) -> StatisticsView:
        """Returns the statistics of the days from `first` to `last`, both included (UTC)."""
        numbers = range((first - _EPOCH).days, (last - _EPOCH).days + 1)
        days = self._store.part(StatisticsReads).days(numbers)
        rows: defaultdict[Row, Counters] = defaultdict(Counter)
        for fields in days.values():
            for counted in _parse(fields):
                rows[counted.row][counted.counter] += counted.by
        return _view(first, last, rows).model_copy(
            update={"days": [_day(day, fields) for day, fields in days.items() if fields]}
        )


def today() -> date:
    """Returns the current day in UTC."""
    return datetime.now(UTC).date()


def _parse(fields: Mapping[str, str]) -> Iterator[_Counted]:
    """Yield the counters of a day: each field is a counter's name and its row as JSON."""
    for field, value in fields.items():
        counter, bracket, row = field.partition("[")
        if bracket:
            yield _Counted(counter, tuple(json.loads(bracket + row)), int(value))


def _day(day: int, fields: Mapping[str, str]) -> DayCount:
    ended, cost = Counter[str](), 0
    for counter, row, by in _parse(fields):
        if row[0] == "session" and counter == "n":
            ended[str(row[3])] += by
        elif counter == "cost_micros":
            cost += by
    return DayCount(
        day=(_EPOCH + timedelta(days=day)).isoformat(), ended=dict(ended), cost_usd=cost / MICROS
    )


def _view(first: date, last: date, rows: Mapping[Row, Counters]) -> StatisticsView:
    kinds: defaultdict[str | int, list[tuple[Row, Counters]]] = defaultdict(list)
    for (kind, *names), counters in sorted(rows.items(), key=lambda row: list(map(str, row[0]))):
        kinds[kind].append((tuple(names), counters))
    loops = [_loop(*row) for row in kinds["loop"]]
    sessions = [_session(*row) for row in kinds["session"]]
    usage = [_usage(*row) for row in kinds["usage"]]
    completed = sum(row.count for row in sessions if row.status == "completed")
    cost = sum(row.cost_usd for row in usage)
    return StatisticsView(
        first=first.isoformat(),
        last=last.isoformat(),
        sessions=sessions,
        loops=loops,
        acceptance=list(acceptance(loops)),
        checks=[_check(*row) for row in kinds["check"]],
        usage=usage,
        cost_per_completed_usd=cost / completed if completed else None,
    )


def _session(row: Row, counters: Counters) -> SessionCount:
    kind, name, status, reason = map(str, row)
    return SessionCount(
        kind=kind, name=name, status=status, reason=reason, count=counters["n"],
        seconds=counters["ms"] / 1000,
    )  # fmt: skip


def _loop(row: Row, counters: Counters) -> LoopCount:
    agent, verdict, iterations = row
    return LoopCount(
        agent=str(agent), verdict=str(verdict), iterations=int(iterations), count=counters["n"],
        seconds=counters["ms"] / 1000,
    )  # fmt: skip


def _check(row: Row, counters: Counters) -> CheckCount:
    checker, verdict = map(str, row)
    return CheckCount(
        checker=checker, verdict=verdict, count=counters["n"], seconds=counters["ms"] / 1000
    )


def _usage(row: Row, counters: Counters) -> UsageCount:
    kind, agent = map(str, row)
    return UsageCount(
        kind=kind,
        agent=agent,
        cost_usd=counters["cost_micros"] / MICROS,
        input_tokens=counters["tokens_in"],
        output_tokens=counters["tokens_out"],
    )


def acceptance(loops: Iterable[LoopCount]) -> Iterator[Acceptance]:
    """Yields, by agent and iteration, how many loops reached it and how many were accepted in it.

    A loop that ended in iteration k reached all iterations up to k.
    """
    ended: defaultdict[str, Counter[int]] = defaultdict(Counter)
    accepted: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for loop in loops:
        ended[loop.agent][loop.iterations] += loop.count
        if loop.verdict == "accept":
            accepted[loop.agent][loop.iterations] += loop.count
    for agent, by_iteration in ended.items():
        for iteration in range(1, max(by_iteration) + 1):
            yield Acceptance(
                agent=agent,
                iteration=iteration,
                reached=sum(n for k, n in by_iteration.items() if k >= iteration),
                accepted=accepted[agent][iteration],
            )
