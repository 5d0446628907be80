"""The fleet overview: queues, workers and their load, sessions, overdue entries, statistics.

All values are read from Redis on demand. Each read is bounded, so that the cost does not depend on
the number of sessions.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import NamedTuple

from pydantic import BaseModel

from app.core.addresses import iso
from app.core.environment import Definitions
from app.core.outcomes import MICROS
from app.core.records import StepRecord
from app.core.routing import full_queue
from app.core.states import ENDED, SessionStatus
from app.fleet.admission import agents_of, tools_of
from app.fleet.flow_tools import flow_tool
from app.fleet.folder_reports import FolderReports
from app.fleet.inventory import all_live_workers, all_queues, consumed_queues
from app.fleet.troubles import Troubles
from app.store.fleet import StatisticsReads, StoredStep
from app.store.store import Store
from leadhand.models.verdicts import Reason
from leadhand.models.views.fleet import (
    Acceptance,
    AgentView,
    CheckCount,
    DayCount,
    FleetView,
    LoopCount,
    Overdue,
    QueueView,
    Running,
    SessionCount,
    StatisticsView,
    ToolView,
    UsageCount,
    WorkerView,
)
from leadhand.models.views.result import LedgerEntry
from leadhand.models.views.shared import FlowView

#: Maximum entries of `leases` and `ready` that are read, earliest first.
LOOKED_AT = 1000
#: Number of newest sessions per status in the statistics.
LATELY = 100
#: Number of these sessions, and of their last iterations, whose verdicts are counted.
SHOWN, ITERATIONS = 20, 3
#: How long a worker's refusal to start is shown.
REFUSED_MS = 24 * 3600 * 1000
Depths = Callable[[Sequence[str]], Mapping[str, int]]
#: Days that a request may span, and how long the counts are kept.
MOST_DAYS = 400
_EPOCH = date(1970, 1, 1)
Row = tuple[str | int, ...]
#: Counters of a row by name: n, ms, cost_micros, tokens_in, tokens_out.
Counters = Counter[str]


class RecentEnds(NamedTuple):
    """Statistics of the sessions that ended last in each status."""

    #: (status, reason code) -> number of sessions
    reasons: Mapping[tuple[str, str], int]
    #: Iterations of completed loops -> number of sessions
    iterations: Mapping[int, int]
    #: Verdict of their last iterations -> number of iterations
    verdicts: Mapping[str, int]
    #: Total usage of all sessions: cost_micros, tokens_in, tokens_out.
    used: Mapping[str, int] = MappingProxyType({})


class _Route(BaseModel):
    """The part of a step's route that the overview needs."""

    action: str
    queue: str
    label: str

    def of(self, stored: StoredStep) -> str:
        """The queue of a step of this route, with its place or session."""
        return full_queue(self.queue, place=stored.place, session=stored.ref.id)


class _Waiting(NamedTuple):
    queue: str
    since_ms: int


class Fleet:
    """Builds the overview of the fleet."""

    def __init__(
        self,
        store: Store,
        *,
        depths: Depths,
        troubles: Troubles | None = None,
        flows: Callable[[], Sequence[FlowView]] = tuple,
        place: str = "",
    ) -> None:
        self._folders = FolderReports(store, place=place)
        self.inventories = self._folders.inventories
        self._troubles = troubles or Troubles()
        self._flows = flows
        self._store = store
        self._reads = store.overview()
        self._depths = depths

    def at_work(self) -> list[WorkerView]:
        """Returns the fleet's live workers, each with the steps that it is running."""
        return _with_load(self.inventories(), self._running())

    def agents(self, definitions: Definitions | None = None) -> list[AgentView]:
        """Returns the agents that live workers offer, and on which workers each can be used."""
        return agents_of(self.inventories(definitions))

    def tools(
        self, definitions: Definitions | None = None, flows: Sequence[FlowView] | None = None
    ) -> list[ToolView]:
        """Returns the tools that live workers offer, where each can be used, and flows as tools."""
        workers = self.inventories(definitions)
        flows = (self._flows() if flows is None else flows) if workers else ()
        return sorted([*tools_of(workers), *map(flow_tool, flows)], key=lambda tool: tool.name)

    def workers(self, definitions: Definitions | None = None) -> list[WorkerView]:
        """Returns all live workers with their running steps, also those that serve one session."""
        found = all_live_workers(self._store.fleet().workers(), self._store.now_ms())
        if definitions is not None:
            found = self._folders.views(found, definitions, now_ms=self._store.now_ms())
        return _with_load(found, self._running())

    def queues(self) -> list[QueueView]:
        """Returns all queues that a live worker consumes or that hold a step, by name.

        Includes queues of expired workers that still hold messages.
        """
        return self._queues(self.inventories(), self._running(), self._store.now_ms())

    def overview(self) -> FleetView:
        """Returns the state of the fleet: sessions, overdue work, queues and workers."""
        workers, running, now = self.inventories(), self._running(), self._store.now_ms()
        owed = self._store.fleet().owed_exports()
        return FleetView(
            at=iso(now),
            sessions=self.sessions(),
            queues=self._queues(workers, running, now),
            workers=_with_load(workers, running),
            leases=self.overdue("leases", now),
            ready=self.overdue("ready", now),
            exports_owed=len(owed),
            export_trouble=next(iter(owed.values()), None),
            troubles=[
                *self._troubles.current(),
                *(f"worker {one.name}: {why}" for one in workers for why in one.troubles),
                *self._refusals(now),
            ],
        )

    def _refusals(self, now_ms: int) -> list[str]:
        """The workers that refused to start within the last day, with their reasons."""
        refusals = self._store.fleet().refusals()
        found = {name: json.loads(text) for name, text in refusals.items()}
        old = [name for name, one in found.items() if now_ms - one["at_ms"] > REFUSED_MS]
        self._store.fleet().delete_refusals(old)
        return [
            f"worker {name} refused to start at {iso(one['at_ms'])}: {one['why']}"
            for name, one in sorted(found.items())
            if name not in old
        ]

    def sessions(self) -> dict[str, int]:
        """Counts the sessions by status."""
        sizes = self._reads.sizes([f"status:{status.value}" for status in SessionStatus])
        return {name.removeprefix("status:"): size for name, size in sizes.items()}

    def overdue(self, part: str, now_ms: int) -> Overdue:
        """Returns the number and age of overdue entries in the sorted set `leases` or `ready`."""
        past = self._reads.past(part, now_ms)
        if past.oldest_ms is None:
            return Overdue(entries=past.entries)
        oldest_s = round((now_ms - past.oldest_ms) / 1000, 1)
        return Overdue(count=past.past, oldest_s=oldest_s, entries=past.entries)

    def recent_ends(self) -> RecentEnds:
        """Counts reasons, iterations and verdicts of recently ended sessions; adds total usage."""
        reasons: Counter[tuple[str, str]] = Counter()
        iterations: Counter[int] = Counter()
        verdicts: Counter[str] = Counter()
        for status in sorted(status.value for status in ENDED):
            refs = self._reads.newest_refs(status, LATELY)
            for reason, kind, count in self._reads.fields(refs, ["reason", "kind", "iterations"]):
                code = Reason.model_validate_json(reason).code if reason else ""
                reasons[status, code] += 1
                if status == SessionStatus.COMPLETED.value and kind == "loop" and count:
                    iterations[int(count)] += 1
            for line in self._reads.last_entries(refs[:SHOWN], ITERATIONS):
                verdicts[LedgerEntry.model_validate_json(line).verdict] += 1
        return RecentEnds(reasons, iterations, verdicts, self._reads.total_usage())

    def _running(self) -> list[Running]:
        looked_at = self._reads.next("leases", LOOKED_AT)
        records = [StepRecord.model_validate_json(stored.record) for stored in looked_at]
        return [
            _attempt(stored, record)
            for stored, record in zip(looked_at, records, strict=True)
            if record.state == "running"
        ]

    def _waiting(self, now_ms: int) -> Iterable[_Waiting]:
        """Yields ready steps that are due, with the time since which they could run."""
        for stored in self._reads.next("ready", LOOKED_AT):
            record = StepRecord.model_validate_json(stored.record)
            since = max(record.ready or now_ms, record.due or 0)
            if record.state == "ready" and since <= now_ms:
                route = _Route.model_validate_json(stored.route)
                yield _Waiting(route.of(stored), since)

    def _queues(
        self, workers: Sequence[WorkerView], running: Sequence[Running], now_ms: int
    ) -> list[QueueView]:
        waiting = list(self._waiting(now_ms))
        names = {
            queue for worker in workers for queue in (*worker.queues, *consumed_queues(worker))
        }
        names |= {one.queue for one in waiting} | {one.queue for one in running}
        others = all_queues(self._store.fleet().workers()) - names
        depths = self._depths(sorted(names | others))
        names |= {name for name in others if depths.get(name)}
        return [
            _queue_view(name, depths.get(name, 0), workers, running, waiting, now_ms)
            for name in sorted(names)
        ]


def _queue_view(
    name: str,
    depth: int,
    workers: Sequence[WorkerView],
    running: Sequence[Running],
    waiting: Sequence[_Waiting],
    now_ms: int,
) -> QueueView:
    consumers = [worker for worker in workers if name in consumed_queues(worker)]
    since = [one.since_ms for one in waiting if one.queue == name]
    return QueueView(
        queue=name,
        depth=depth,
        ready=len(since),
        running=sum(one.queue == name for one in running),
        oldest_ready_at=iso(min(since)) if since else None,
        oldest_ready_s=round((now_ms - min(since)) / 1000, 1) if since else None,
        consumers=len(consumers),
        slots=sum(worker.concurrency for worker in consumers),
    )


def _attempt(stored: StoredStep, record: StepRecord) -> Running:
    route = _Route.model_validate_json(stored.route)
    return Running(
        session=stored.ref.id,
        address=stored.address,
        action=route.action,
        label=route.label,
        queue=route.of(stored),
        attempt=record.attempt,
        process=record.owner or "",
        since=iso(record.since) if record.since else None,
    )


def _with_load(workers: Sequence[WorkerView], running: Sequence[Running]) -> list[WorkerView]:
    return [
        worker.model_copy(
            update={"running": [r for r in running if r.process.split("/")[0] == worker.name]}
        )
        for worker in workers
    ]


class _Counted(NamedTuple):
    counter: str
    row: Row
    by: int


def read_statistics(store: Store, first: date, last: date) -> StatisticsView:
    """Returns the statistics of the days from `first` to `last`, both included (UTC)."""
    numbers = range((first - _EPOCH).days, (last - _EPOCH).days + 1)
    days = store.part(StatisticsReads).days(numbers)
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
